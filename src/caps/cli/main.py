"""The command `caps`. A new command is one file and one line here."""

import errno
import gc
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer

from caps import __version__
from caps.cli.output import say
from caps.core.errors import CapsError, SettingError

# What a disk, or the rights on it, can refuse anywhere: a sentence says so, not a traceback.
_FAULTS_OF_DISKS = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM, errno.EMFILE,
    errno.ENFILE, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO, errno.EBADF, errno.EISDIR, errno.ENOTDIR,
}  # fmt: skip

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
        _open_standard_streams()
        try:
            _refuse_odd_names(sys.argv[1:])
            app = make_app(sys.argv[1] if len(sys.argv) > 1 else None)
            spare_collector()
            code = app(standalone_mode=False)
        finally:
            sys.stdout.flush()  # what cannot be written is found here, not when Python ends
        sys.exit(code)
    except CapsError as error:
        _fail(f"caps: {error}", 2, "red")
    except KeyboardInterrupt:
        sys.exit(130)
    except typer.Abort:
        _fail("Aborted.", 1)
    except BrokenPipeError:
        _close_stdout()
        sys.exit(141)
    except OSError as error:
        if error.errno not in _FAULTS_OF_DISKS:
            raise
        _fail(f"caps: {error.filename or 'cannot write'}: {error.strerror}", 2, "red")
    except Exception as error:
        # Typer's own errors of a command line, which quote its words; some versions bring their own click.
        if not hasattr(error, "format_message"):
            raise
        _fail(_usage(error), getattr(error, "exit_code", 2))


def _usage(error: Any) -> str:
    """What is wrong with a command line, as Typer says it."""
    said, context = str(error.format_message()), getattr(error, "ctx", None)
    if said.startswith("Usage: "):
        return said  # a group without a command: the help itself
    said = f"Error: {said}"
    if context is None:
        return said
    return f"{context.get_usage()}\nTry '{context.command_path} --help' for help.\n\n{said}"


def _fail(words: str, code: int, style: str = "default") -> NoReturn:
    """End with a message; where not even that can be written, with the code alone."""
    _close_stdout()
    with suppress(OSError):
        say(words, style)
    sys.exit(code)


def _close_stdout() -> None:
    """Write nothing more: what is still buffered would fail again when Python ends."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_standard_streams() -> None:
    """Make sure that standard streams are open: else a file we open takes the place of one, and what is
    printed, or what a child process says, goes into it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _refuse_odd_names(words: list[str]) -> None:
    """Refuse words that are not UTF-8: no run file, page or JSON line could name such a file."""
    for word in words:
        if any("\ud800" <= letter <= "\udfff" for letter in word):
            raise SettingError(f"{word}: is not UTF-8: rename the file, or name it by a link")
