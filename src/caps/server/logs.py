"""Log lines: JSON, one an event, without prompts, answers and keys unless asked for."""

import sys
import time
from dataclasses import dataclass, field
from typing import IO

import msgspec

from caps.core.text import printable_json

LONGEST = 200


@dataclass(frozen=True, slots=True)
class Log:
    """Writes lines; `prompts` lets what clients and models say in, `quiet` everything out but faults."""

    prompts: bool = False
    quiet: bool = False
    file: IO[str] = field(default_factory=lambda: sys.stderr)

    def say(self, event: str, *, level: str = "info", **fields: object) -> None:
        """Write one line; texts are cut, and line breaks in them escaped, so a line is a line."""
        if self.quiet and level == "info":
            return
        line = {"time": round(time.time(), 3), "level": level, "event": event}
        line |= {name: _short(value) for name, value in fields.items() if value is not None}
        self.file.write(printable_json(msgspec.json.encode(line)).decode() + "\n")
        self.file.flush()

    def say_words(self, run: str, **words: object) -> None:
        """Write what was said, if that is wanted."""
        if self.prompts:
            line = {"time": round(time.time(), 3), "level": "info", "event": "words", "run": run, **words}
            self.file.write(printable_json(msgspec.json.encode(line)).decode() + "\n")
            self.file.flush()


def _short(value: object) -> object:
    return value[:LONGEST] if isinstance(value, str) else value
