"""Views of candidates as no plug-in should write them; workers and commands find them by their dotted names."""

import os
import sys
from pathlib import Path


def endless(candidate):
    """Never ends on a text that begins so; where that goes on with a path, the file there says that it began."""
    if candidate.text.startswith("endless"):
        if path := candidate.text.removeprefix("endless").strip():
            Path(path).touch()
        while True:
            pass
    return candidate.text


def deadly(candidate):
    if "deadly" in candidate.text:
        os._exit(7)
    return candidate.text


def greedy(candidate):
    return "x" * (1 << 40) if "greedy" in candidate.text else candidate.text


def loud(candidate):
    print("this is no reply", flush=True)  # noqa: T201
    os.write(1, b"\x00" * 64)
    sys.stderr.write("nor is this\n")
    return candidate.text


def broken(candidate):
    if "broken" in candidate.text:
        raise KeyError("lost")
    return candidate.text
