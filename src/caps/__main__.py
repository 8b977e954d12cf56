"""`python -m caps` is the command `caps`."""

from caps.cli.main import main

main()
