"""`caps journal`: what is stored, and how to be rid of it."""

import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from platformdirs import user_data_path

from caps.cli.options import JournalFile
from caps.cli.output import JsonFlag, print_json, say, stdout
from caps.core.errors import SettingError
from caps.core.text import number
from caps.journal import maintenance
from caps.journal.maintenance import Stats
from caps.journal.store import default_path
from caps.reports.console import shown, table

app = typer.Typer(help="What is stored, and how to be rid of it.", no_args_is_help=True)

DAY = 86400.0

OlderThan = Annotated[
    float | None,
    typer.Option("--older-than", metavar="DAYS", min=0, help="Only what was stored longer ago."),
]
# No environment variable: CAPS_MODEL names whom to ask, and must not choose what is deleted.
OfModel = Annotated[str | None, typer.Option("--model", metavar="NAME", help="Only replies of this model.")]
Everything = Annotated[bool, typer.Option("--all", help="Everything that no other option leaves out.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")]


@app.callback()
def group() -> None:
    """See what is stored, and be rid of it."""


@app.command()
def stats(journal: JournalFile = None, as_json: JsonFlag = False) -> None:
    """What the journal holds: replies, facts, tokens paid for, by model."""
    found = maintenance.read_stats(_path(journal))
    if as_json:
        print_json(_stats_line(found))
        return
    totals = [
        ("journal", str(found.path)),
        ("size", f"{number(found.bytes, 0)} bytes"),
        ("schema", f"version {found.version}"),
        ("replies", number(found.replies, 0)),
        ("redacted", f"{number(found.redacted, 0)} more, without their words"),
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


@app.command()
def prune(
    older_than: OlderThan = None,
    model: OfModel = None,
    everything: Everything = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    journal: JournalFile = None,
    as_json: JsonFlag = False,
) -> None:
    """Take replies out of the journal for good; options narrow one another.

    Without --model, facts of that age go too. caps replay and a run that is continued need the replies:
    without them the same requests are sent, and paid for, again.
    """
    path, which = _path(journal), _which(older_than, model, everything)
    found = _found(path, which, yes=yes, dry_run=dry_run)
    words = _words(found)
    if not dry_run:
        if not yes:
            _state_loss(found, dry_run=False)
        _ask(f"Take {words} out of {path} for good?", found, yes=yes)
        found = maintenance.prune(path, which)
        words = _words(found)
    _print_removal("would go" if dry_run else "gone", words, found, dry_run=dry_run, as_json=as_json)


@app.command()
def redact(
    older_than: OlderThan = None,
    model: OfModel = None,
    everything: Everything = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    journal: JournalFile = None,
    as_json: JsonFlag = False,
) -> None:
    """Take the words of replies out of the journal for good and keep their figures.

    Text, reasoning and log-probabilities go; model, tokens, date, template and the digest of the prompt stay.
    caps replay and a run that is continued need the words: without them the same requests are sent, and paid
    for, again. That is stated, and asked for unless --yes is given. Facts and folders of runs (--out) stay.
    """
    path, which = _path(journal), _which(older_than, model, everything)
    counted = _found(path, which, yes=yes, dry_run=dry_run)
    found = replace(counted, redacted=0, facts=0)
    _state_loss(found, dry_run=dry_run)
    if not dry_run:
        _ask(f"Take the words of {_words(found)} out of {path} for good?", found, yes=yes)
        found = maintenance.redact(path, which, now=time.time())
    what = "would be redacted" if dry_run else "redacted"
    _print_removal(what, _words(found), found, dry_run=dry_run, as_json=as_json)


def _path(journal: Path | None) -> Path:
    return journal or default_path(user_data_path("caps"))


def _which(older_than: float | None, model: str | None, everything: bool) -> maintenance.ReplyFilter:  # noqa: FBT001
    if older_than is None and model is None and not everything:
        raise SettingError("say which replies: --older-than DAYS, --model NAME or --all")
    return maintenance.ReplyFilter(model, None if older_than is None else time.time() - older_than * DAY)


def _found(path: Path, which: maintenance.ReplyFilter, *, yes: bool, dry_run: bool) -> maintenance.Removal:
    """What is meant; refuses where nobody can be asked, remarks on a model that is not there."""
    if not (yes or dry_run or sys.stdin.isatty()):
        raise SettingError(
            "there is no terminal to ask for leave at: add --yes, or look first with --dry-run"
        )
    found = maintenance.count(path, which)
    if which.model is not None and not found.replies and not found.redacted:
        known = ", ".join(repr(share.model) for share in maintenance.read_stats(path).by_model) or "none"
        remark = f"no such reply of model {which.model!r}; models in the journal: {known}"
        say(remark, "yellow")
    return found


def _state_loss(found: maintenance.Removal, *, dry_run: bool) -> None:
    """State what the loss of replies means, before it is asked for."""
    if found.replies:
        replies = _words(maintenance.Removal(replies=found.replies))
        read, written = number(found.prompt_tokens, 0), number(found.output_tokens, 0)
        say(
            f"{replies} ({read} tokens read, {written} written) {'would' if dry_run else 'will'} have to be "
            "paid for again by every run that is continued or replayed and needs them",
            "yellow",
        )


def _ask(question: str, found: maintenance.Removal, *, yes: bool) -> None:
    # With nothing to lose there is nothing to ask: the file is only tidied.
    if yes or not (found.replies or found.redacted or found.facts):
        return
    if not typer.confirm(question, err=True):
        say("nothing was changed", "dim")
        raise typer.Exit(1)


def _words(found: maintenance.Removal) -> str:
    parts = [f"{number(found.replies, 0)} {'reply' if found.replies == 1 else 'replies'}"]
    if found.redacted:
        parts.append(f"figures of {number(found.redacted, 0)} redacted")
    if found.facts:
        parts.append(f"{number(found.facts, 0)} {'fact' if found.facts == 1 else 'facts'}")
    return ", ".join(parts)


def _print_removal(what: str, words: str, found: maintenance.Removal, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        counts = {"replies": found.replies, "redacted": found.redacted, "facts": found.facts}
        print_json(
            {"dry_run": dry_run, **counts, "bytes_of_words" if dry_run else "bytes_freed": found.bytes}
        )
        return
    size = f"{number(found.bytes, 0)} bytes {'of words' if dry_run else 'freed'}"
    stdout().print(shown(f"{what}: {words}; {size}"), markup=False, soft_wrap=True)


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
