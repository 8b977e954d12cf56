"""The command `caps`: its subcommands, its help, and how errors end it.

A new command is one file and one line of `COMMANDS`.
"""

import errno
import gc
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer.core import TyperGroup

from caps import __version__
from caps.cli.help import print_help
from caps.cli.output import say
from caps.core.errors import BatchWaitingError, CapsError, SettingError, UnreadableJudgeError

# Errors of disks and permissions, which can occur anywhere: they end in a message, not in a traceback.
_FILE_ERRORS = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM, errno.EMFILE,
    errno.ENFILE, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO, errno.EBADF, errno.EISDIR, errno.ENOTDIR,
}  # fmt: skip


class Entry(NamedTuple):
    """A command: its module, its panel in the help, and its summary, the first line of its docstring."""

    module: str
    panel: str
    summary: str


_CHOOSE, _MEASURE, _FILES, _SERVE, _SETUP = (
    "Choose answers", "Plan and measure", "Results and data", "Other ways to run", "This installation",
)  # fmt: skip
#: The summaries stand here so that `caps --help` and the completion of shells need not load every command.
COMMANDS = {
    "demo": Entry("demo", _CHOOSE, "Try the main job on shipped cases; nothing needs to be configured."),
    "select": Entry("select", _CHOOSE, "Choose the best candidate of each case."),
    "solve": Entry("solve", _CHOOSE, "Generate answers to one question and print the best."),
    "sample": Entry("sample", _CHOOSE, "Generate candidates for each problem, as input of caps select."),
    "score": Entry("score", _CHOOSE, "Score every candidate with a reward or classifier server."),
    "plan": Entry("plan", _MEASURE, "Forecast calls, tokens and cost of every strategy."),
    "diagnose": Entry("diagnose", _MEASURE, "Measure how accurate a judge is, and recommend a strategy."),
    "simulate": Entry("simulate", _MEASURE, "Compare strategies on a simulated judge; no model is asked."),
    "bench": Entry(
        "bench",
        _MEASURE,
        "Run a study, or compare strategies on labelled cases.",
    ),
    "reproduce": Entry("reproduce", _MEASURE, "Measure the paper's tables with your own models."),
    "grade": Entry("grade", _MEASURE, "Label every candidate as right or wrong."),
    "report": Entry("report", _FILES, "Write a page about a run: choices, contests and costs."),
    "replay": Entry("replay", _FILES, "Repeat a run from its journal; no model is asked."),
    "export": Entry("export", _FILES, "Write winners, candidates or judged pairs for another tool."),
    "import": Entry("import_", _FILES, "Convert other tools' logs, or published problems, to cases."),
    "serve": Entry("serve", _SERVE, "Serve an OpenAI-compatible API that answers with the best of n."),
    "list": Entry("list_", _SETUP, "List strategies, judges, models, settings and other parts."),
    "doctor": Entry("doctor", _SETUP, "Check what works on this machine, and how to install the rest."),
    "journal": Entry("journal", _SETUP, "Show what the journal stores, and delete from it."),
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
    """Pick the best of many LLM answers at the lowest judge cost."""


def make_app(only: str | None = None) -> typer.Typer:
    """All commands, loaded; or `only` one of them, since the others need not be loaded to run it."""
    from caps.cli.options import EPILOG, Command  # noqa: PLC0415  (the overview of all commands does not need it)

    app = _empty_app()
    for name in COMMANDS if only is None else (only,):
        entry = COMMANDS[name]
        module = import_module(f"caps.cli.{entry.module}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name, cls=Group, help=entry.summary, rich_help_panel=entry.panel)
        else:
            command = getattr(module, entry.module)
            epilog = EPILOG if hasattr(command, "__wrapped__") else None
            app.command(name, cls=Command, rich_help_panel=entry.panel, epilog=epilog)(command)
    return app


def make_overview() -> typer.Typer:
    """The names and summaries of all commands, for the help and for completion; none is loaded."""
    app = _empty_app()
    for name, entry in COMMANDS.items():
        app.command(name, help=entry.summary, rich_help_panel=entry.panel)(_not_loaded)
    return app


class Group(TyperGroup):
    """A command with subcommands, which its help lists in panels."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Print the help."""
        print_help(self, ctx)


def _empty_app() -> typer.Typer:
    app = typer.Typer(
        name="caps",
        cls=Group,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,
        epilog="caps COMMAND --help describes a command. Start with caps demo.",
    )
    app.callback()(caps)
    return app


def _not_loaded() -> None:
    raise SettingError("the command must be the first word: caps COMMAND [OPTIONS]")


def _first_word(words: list[str], environment: Mapping[str, str]) -> str:
    """The command that is meant, on the command line or in the line that a shell wants completed."""
    if "_CAPS_COMPLETE" in environment:
        line = environment.get("_TYPER_COMPLETE_ARGS") or environment.get("COMP_WORDS", "")
        words = line.split()[1:]
    return words[0] if words else ""


def spare_collector() -> None:
    """Keep the garbage collector from scanning everything that is loaded again and again."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def main() -> None:
    """Run the command line; an error of the user ends in one line and exit code 2.

    Waiting for the results of a batch ends it with exit code 4, a judge whose replies cannot be read with 5.
    """
    gc.disable()  # until everything is loaded: loading creates many objects and hardly any garbage
    try:
        _open_standard_streams()
        try:
            _refuse_odd_names(sys.argv[1:])
            word = _first_word(sys.argv[1:], os.environ)
            app = make_app(word) if word in COMMANDS else make_overview()
            spare_collector()
            code = app(standalone_mode=False)
        finally:
            sys.stdout.flush()  # a failed write is found here, not when Python exits
        sys.exit(code)
    except BatchWaitingError as error:
        _fail(f"caps: {error}", 4, "yellow")
    except UnreadableJudgeError as error:
        _fail(f"caps: {error}", 5, "red")
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
        if error.errno not in _FILE_ERRORS:
            raise
        _fail(f"caps: {error.filename or 'cannot write'}: {error.strerror}", 2, "red")
    except Exception as error:
        # Typer's own errors of a command line; some versions of it bring their own click.
        if not hasattr(error, "format_message"):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.exit(2)  # the help has been printed
        _fail(_usage(error), getattr(error, "exit_code", 2))


def _usage(error: Any) -> str:
    """The message of Typer about a wrong command line."""
    message, context = f"Error: {error.format_message()}", getattr(error, "ctx", None)
    word = getattr(error, "option_name", "").lstrip("-").replace("-", "_")
    if word:
        from caps.config import options  # noqa: PLC0415  (the overview of all commands does not need it)

        if word in options() and options()[word].advanced:
            message = f"Error: --{word.replace('_', '-')} is no option: give --set {word}=VALUE"
    if context is None:
        return message
    return f"{message}\nTry '{context.command_path} --help' for help."


def _fail(words: str, code: int, style: str = "default") -> NoReturn:
    """Exit with a message; if even that cannot be written, with the code alone."""
    _close_stdout()
    with suppress(OSError):
        say(words, style)
    sys.exit(code)


def _close_stdout() -> None:
    """Discard what is still buffered: writing it would fail again when Python exits."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_standard_streams() -> None:
    """Make sure that the standard streams are open.

    Otherwise a file that we open takes the place of one, and what is printed goes into it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _refuse_odd_names(words: list[str]) -> None:
    """Refuse arguments that are not UTF-8: no run file, page or JSON line could name such a file."""
    for word in words:
        if any("\ud800" <= letter <= "\udfff" for letter in word):
            raise SettingError(f"{word}: is not UTF-8: rename the file, or name it by a link")
