"""Write docs/reference/cli.md from the program's own help."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "cli.md"
COMMANDS = (
    "select", "sample", "solve", "grade", "replay", "plan", "simulate", "import", "export", "journal stats",
    "journal prune", "journal redact", "list strategies", "list views", "list signatures", "list profiles",
    "list presets", "list methods", "list datasets", "demo",
)  # fmt: skip


def page() -> str:
    """The whole page."""
    parts = ["# Commands\n\nWritten by `make docs` from the program itself; do not edit.\n"]
    for command in COMMANDS:
        words = [sys.executable, "-m", "caps", *command.split(), "--help"]
        plain = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
        said = subprocess.run(words, capture_output=True, text=True, check=True, env=plain).stdout  # noqa: S603
        text = "\n".join(
            line.rstrip() for line in said.replace("python -m caps", "caps").splitlines()
        ).strip()
        parts.append(f"## caps {command}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
