"""Write docs/reference/cli/ from the program: a page for each command, with an anchor for each option."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from caps.cli.help import panels, usage
from caps.cli.main import COMMANDS, make_app

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference" / "cli"
NOTE = "<!-- Written by make docs from the program itself; do not edit. -->\n"


def pages() -> dict[str, str]:
    """The text of each page by the name of its file."""
    app = typer.main.get_command(make_app())
    context: Any = app.make_context("caps", [], resilient_parsing=True)
    texts = {"index.md": overview()}
    for name in COMMANDS:
        command = app.get_command(context, name)
        texts[f"{name}.md"] = "\n".join([NOTE, *section(command, f"caps {name}", level=1)])
    return texts


def overview() -> str:
    """The page that lists the commands."""
    lines = [
        NOTE,
        "# Commands",
        "",
        "Each command has a page with all of its options. `caps COMMAND --help` prints the same text.",
    ]
    for panel in dict.fromkeys(entry.panel for entry in COMMANDS.values()):
        rows = [
            f"| [`caps {name}`]({name}.md) | {_plain(entry.summary)} |"
            for name, entry in COMMANDS.items()
            if entry.panel == panel
        ]
        lines += ["", f"## {panel}", "", "| command | what it does |", "|---|---|", *rows]
    return "\n".join(lines) + "\n"


def section(command: Any, path: str, level: int) -> Iterator[str]:
    """The lines about a command: its usage, its description and its options, subcommands included."""
    heads = "#" * level
    context = typer.Context(command, info_name=path)
    yield f"{heads} {path}\n"
    yield f"```text\n{usage(command, context)}\n```\n"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield _plain(" ".join(paragraph.split())) + "\n"
    prefix = "-".join(path.split()[2:])
    for panel, all_rows in panels(command, context):
        if hasattr(command, "commands") and panel == "Commands":
            continue  # each has a section of its own
        rows = [row for row in all_rows if "--help" not in row[0]]
        if rows:
            title = f"{panel} of {path}" if prefix else panel  # a page has each name once
            yield f"{heads}# {title}{_anchor(prefix, f'panel {panel}')}\n"
        for names, meaning in rows:
            yield f"{heads}## `{names}`{_anchor(prefix, names.split()[0].rstrip(','), names)}\n"
            yield _plain(meaning) + "\n"
    if command.epilog:
        yield _plain(command.epilog) + "\n"
    for name, child in getattr(command, "commands", {}).items():
        yield from section(child, f"{path} {name}", level + 1)


def _anchor(prefix: str, name: str, names: str = "") -> str:
    """The anchor of a heading: of an option its long name without dashes."""
    long = next((word.rstrip(",") for word in re.split(r"[ /]", names) if word.startswith("--")), name)
    words = re.sub(r"[^a-z0-9]+", "-", long.lower()).strip("-")
    return f" {{#{'-'.join(part for part in (prefix, words) if part)}}}"


def _plain(text: str) -> str:
    """A text in which Markdown finds nothing to format."""
    return re.sub(r"([\\`*_{}\[\]<>|])", r"\\\1", text)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    written = pages()
    for old in set(FOLDER.glob("*.md")) - {FOLDER / name for name in written}:
        old.unlink()
    for name, text in written.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
