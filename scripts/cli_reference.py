"""Write docs/reference/cli.md from the program's own help."""

from pathlib import Path

from typer.testing import CliRunner

from caps.cli.main import COMMANDS, make_app, make_overview

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "cli.md"
GROUPS = {"journal": ("stats", "prune", "redact")}


def page() -> str:
    """The whole page."""
    parts = ["# Commands\n\nWritten by `make docs` from the program itself; do not edit.\n"]
    app, plain = make_app(), {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "TERMINAL_WIDTH": "100"}
    calls = [[command, part] for command in COMMANDS for part in GROUPS.get(command, ("",))]
    for call in [[""], *calls]:
        words = [word for word in call if word]
        said = CliRunner().invoke(
            app if words else make_overview(), [*words, "--help"], env=plain, prog_name="caps"
        )
        if said.exit_code:
            raise SystemExit(f"caps {' '.join(words)} --help: {said.output}")
        text = "\n".join(line.rstrip() for line in said.output.splitlines()).strip()
        parts.append(f"## {' '.join(['caps', *words])}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
