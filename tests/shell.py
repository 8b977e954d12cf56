"""Running the installed command as a user does."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

CAPS = Path(sys.executable).with_name("caps")


def caps(*words: object, stdin: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `caps` with these words; nothing of the caller's settings or width of window leaks in."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CAPS_", "OPENAI_", "COLUMNS"))}
    return subprocess.run(
        [str(CAPS), *map(str, words)],
        capture_output=True,
        text=True,
        input=stdin,
        env={**clean, **environment},
        timeout=120,
        check=False,
    )


def caps_json(*words: object, **environment: str) -> Any:
    """Run `caps … --json` and read what it prints."""
    done = caps(*words, "--json", **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def json_lines(done: subprocess.CompletedProcess[str]) -> list[Any]:
    """What a command printed, an object a line."""
    return [json.loads(line) for line in done.stdout.splitlines()]
