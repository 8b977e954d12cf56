"""`caps journal`: show what is stored, and delete from it."""

import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from platformdirs import user_data_path

from caps.cli.options import Command, JournalFile, JsonFlag
from caps.cli.output import print_json, say, stdout
from caps.core.errors import SettingError
from caps.core.text import number, printable
from caps.journal import maintenance
from caps.journal.maintenance import Stats
from caps.journal.store import default_path
from caps.reports.console import table

app = typer.Typer(help="Show what the journal stores, and delete from it.", no_args_is_help=True)

DAY = 86400.0

OlderThan = Annotated[
    float | None,
    typer.Option(
        "--older-than", metavar="DAYS", min=0, help="Only entries that are older than this many days."
    ),
]
# No environment variable: CAPS_MODEL names the model to ask, and must not choose what is deleted.
OfModel = Annotated[str | None, typer.Option("--model", metavar="NAME", help="Only replies of this model.")]
Everything = Annotated[
    bool, typer.Option("--all", help="All entries, as far as other options do not exclude them.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; print what would be deleted.")]


@app.callback()
def group() -> None:
    """Show what the journal stores, and delete from it."""


@app.command(cls=Command)
def stats(journal: JournalFile = None, as_json: JsonFlag = False) -> None:
    """Show the size of the journal: replies, facts, and tokens paid for, by model."""
    found = maintenance.read_stats(_path(journal))
    if as_json:
        print_json(_stats_line(found))
        return
    totals = [
        ("journal", str(found.path)),
        ("size", f"{number(found.bytes, 0)} bytes"),
        ("schema", f"version {found.version}"),
        ("replies", number(found.replies, 0)),
        ("redacted", f"{number(found.redacted, 0)} more, without their texts"),
        ("facts", number(found.facts, 0)),
        ("first", _date(found.first_at) or "–"),
        ("last", _date(found.last_at) or "–"),
    ]
    stdout().print(table("", ("", ""), totals, numbers_from=9))
    rows = [
        (share.model, *(number(n, 0) for n in (share.replies, share.redacted, *_tokens(share).values())))
        for share in found.by_model
    ]
    rows.append(("total", *(number(n, 0) for n in (found.replies, found.redacted, *_tokens(found).values()))))
    columns = ("model", "replies", "redacted", "tokens read", "tokens written")
    stdout().print(table("", columns, rows))


@app.command(cls=Command)
def prune(
    older_than: OlderThan = None,
    model: OfModel = None,
    everything: Everything = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    journal: JournalFile = None,
    as_json: JsonFlag = False,
) -> None:
    """Delete replies from the journal; options narrow one another.

    Without --model, facts of that age are deleted too. caps replay and continued runs need the replies:
    without them the same requests are sent, and paid for, again.
    """
    path, which = _path(journal), _which(older_than, model, everything)
    removal = _count(path, which, yes=yes, dry_run=dry_run)
    if not dry_run:
        if not yes:
            _state_loss(removal, dry_run=False)
        _confirm(f"Delete {_words(removal)} from {path}?", removal, yes=yes)
        removal = maintenance.prune(path, which)
    _print_removal("deleted", removal, dry_run=dry_run, as_json=as_json)


@app.command(cls=Command)
def redact(
    older_than: OlderThan = None,
    model: OfModel = None,
    everything: Everything = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    journal: JournalFile = None,
    as_json: JsonFlag = False,
) -> None:
    """Delete the texts of replies from the journal, and keep their figures.

    Text, reasoning and log-probabilities are deleted; model, tokens, date, template and the digest of the
    prompt stay. caps replay and continued runs need the texts: without them the same requests are sent, and
    paid for, again. You are asked first, unless --yes is given. Facts and folders of runs (--out) stay.
    """
    path, which = _path(journal), _which(older_than, model, everything)
    removal = replace(_count(path, which, yes=yes, dry_run=dry_run), redacted=0, facts=0)
    _state_loss(removal, dry_run=dry_run)
    if not dry_run:
        _confirm(f"Delete the texts of {_words(removal)} from {path}?", removal, yes=yes)
        removal = maintenance.redact(path, which, now=time.time())
    _print_removal("redacted", removal, dry_run=dry_run, as_json=as_json)


def _path(journal: Path | None) -> Path:
    return journal or default_path(user_data_path("caps"))


def _which(older_than: float | None, model: str | None, everything: bool) -> maintenance.ReplyFilter:  # noqa: FBT001
    if older_than is None and model is None and not everything:
        raise SettingError("choose the replies: --older-than DAYS, --model NAME or --all")
    return maintenance.ReplyFilter(model, None if older_than is None else time.time() - older_than * DAY)


def _count(path: Path, which: maintenance.ReplyFilter, *, yes: bool, dry_run: bool) -> maintenance.Removal:
    """Count what is selected; refuse without a terminal to confirm at, and warn of an unknown model."""
    if not (yes or dry_run or sys.stdin.isatty()):
        raise SettingError("there is no terminal to confirm at: add --yes, or check first with --dry-run")
    removal = maintenance.count(path, which)
    if which.model is not None and not removal.replies and not removal.redacted:
        known = ", ".join(repr(share.model) for share in maintenance.read_stats(path).by_model) or "none"
        say(f"no such reply of model {which.model!r}; models in the journal: {known}", "yellow")
    return removal


def _state_loss(removal: maintenance.Removal, *, dry_run: bool) -> None:
    """Print what the deletion costs, before it is confirmed."""
    if removal.replies:
        replies = _words(maintenance.Removal(replies=removal.replies))
        read, written = number(removal.prompt_tokens, 0), number(removal.output_tokens, 0)
        say(
            f"{replies} ({read} tokens read, {written} written) {'would' if dry_run else 'will'} have to be "
            "paid for again by every continued or replayed run that needs them",
            "yellow",
        )


def _confirm(question: str, removal: maintenance.Removal, *, yes: bool) -> None:
    # If nothing is lost, nothing is asked: the file is only compacted.
    if yes or not (removal.replies or removal.redacted or removal.facts):
        return
    if not typer.confirm(question, err=True):
        say("nothing was changed", "dim")
        raise typer.Exit(1)


def _words(removal: maintenance.Removal) -> str:
    parts = [f"{number(removal.replies, 0)} {'reply' if removal.replies == 1 else 'replies'}"]
    if removal.redacted:
        parts.append(f"figures of {number(removal.redacted, 0)} redacted")
    if removal.facts:
        parts.append(f"{number(removal.facts, 0)} {'fact' if removal.facts == 1 else 'facts'}")
    return ", ".join(parts)


def _print_removal(what: str, removal: maintenance.Removal, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        size = {"bytes_of_words" if dry_run else "bytes_freed": removal.bytes}
        counts = {"replies": removal.replies, "redacted": removal.redacted, "facts": removal.facts}
        print_json({"dry_run": dry_run, **counts, **size})
        return
    what = f"would be {what}" if dry_run else what
    size_words = f"{number(removal.bytes, 0)} bytes {'of text' if dry_run else 'freed'}"
    stdout().print(printable(f"{what}: {_words(removal)}; {size_words}"), markup=False, soft_wrap=True)


def _stats_line(found: Stats) -> dict[str, Any]:
    return {
        "path": str(found.path),
        "bytes": found.bytes,
        "schema": found.version,
        "replies": found.replies,
        "redacted": found.redacted,
        "facts": found.facts,
        "tokens": _tokens(found),
        "first": _date(found.first_at),
        "last": _date(found.last_at),
        "models": [
            {
                "model": share.model,
                "replies": share.replies,
                "redacted": share.redacted,
                "tokens": _tokens(share),
            }
            for share in found.by_model
        ],
    }


def _tokens(paid: Any) -> dict[str, int]:
    return {"read": paid.prompt_tokens, "written": paid.output_tokens}


def _date(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
