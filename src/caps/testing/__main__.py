"""`python -m caps.testing package.module:function JSON` runs the endpoint that the function makes."""

import sys

from caps.testing.endpoint import run_forever

if __name__ == "__main__":
    run_forever(*sys.argv[1:])
