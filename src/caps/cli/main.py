"""The command `caps`."""

import os
import sys

import typer

from caps.cli import (
    bench,
    demo,
    diagnose,
    doctor,
    export,
    grade,
    import_,
    journal,
    list_,
    plan,
    replay,
    report,
    sample,
    select,
    simulate,
    solve,
)
from caps.cli.output import say
from caps.core.errors import CapsError

app = typer.Typer(
    name="caps",
    help="Pick the best of many LLM answers at the lowest verifier cost.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
)
app.command("bench")(bench.bench)
app.command("demo")(demo.demo)
app.command("diagnose")(diagnose.diagnose)
app.command("doctor")(doctor.doctor)
app.command("export")(export.export)
app.command("grade")(grade.grade)
app.command("import")(import_.import_)
app.command("plan")(plan.plan)
app.command("replay")(replay.replay)
app.command("report")(report.report)
app.command("sample")(sample.sample)
app.command("select")(select.select)
app.command("simulate")(simulate.simulate)
app.command("solve")(solve.solve)
app.add_typer(journal.app, name="journal")
app.add_typer(list_.app, name="list")


def main() -> None:
    """Run the command line; a mistake of the user's ends in one line and exit code 2."""
    try:
        app()
    except CapsError as error:
        say(f"caps: {error}", "red")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
