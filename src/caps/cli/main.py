"""The command `caps`. A new command is one file and one line here."""

import gc
import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated

import typer

from caps import __version__
from caps.cli.output import say
from caps.core.errors import CapsError

COMMANDS = {
    "batch": "batch",
    "bench": "bench",
    "demo": "demo",
    "diagnose": "diagnose",
    "doctor": "doctor",
    "export": "export",
    "grade": "grade",
    "import": "import_",
    "journal": "journal",
    "list": "list_",
    "plan": "plan",
    "replay": "replay",
    "report": "report",
    "sample": "sample",
    "select": "select",
    "serve": "serve",
    "simulate": "simulate",
    "solve": "solve",
}


def _show_version(wanted: bool) -> None:  # noqa: FBT001
    if wanted:
        typer.echo(f"caps {__version__}")
        raise typer.Exit


def caps(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Pick the best of many LLM answers at the lowest verifier cost."""


def make_app(only: str | None = None) -> typer.Typer:
    """The commands, or what one word alone needs: the others need not be loaded to run it."""
    app = typer.Typer(
        name="caps",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,
    )
    app.callback()(caps)
    for name in _needed(only):
        room = COMMANDS[name]
        module = import_module(f"caps.cli.{room}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(getattr(module, room))
    return app


def _needed(word: str | None) -> Iterable[str]:
    if word == "--version":
        return ()
    return (word,) if word in COMMANDS else COMMANDS


def spare_collector() -> None:
    """Keep the cycle collector from looking through all that is loaded again and again."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def main() -> None:
    """Run the command line; a mistake of the user's ends in one line and exit code 2."""
    try:
        app = make_app(sys.argv[1] if len(sys.argv) > 1 else None)
        spare_collector()
        app()
    except CapsError as error:
        say(f"caps: {error}", "red")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
