"""Compiles a program of another language, then runs it on one input after another; see `feed`.

The first message is the source, the name of its file, and the commands that compile and run it.
"""

from __future__ import annotations

import os

from caps.sandbox.inside.feed import ERRORS, answer_inputs, run_child
from caps.sandbox.inside.plain import decode_given
from caps.sandbox.inside.wire import Wire


def main(limit: int) -> None:
    """Compile the program and answer every input, each with its own time limit."""
    wire = Wire()
    source, name, compiling, running = decode_given(wire.receive() or b"")
    with open(name, "wb") as file:  # noqa: PTH123 - pathlib takes long to load
        file.write(source)
    if compiling:
        answer = run_child(wire, lambda: _execute(compiling), b"", limit, 0)
        if not answer.startswith(b"0 "):
            wire.send(b"unparsed " + answer[-ERRORS:])
            return
    wire.send(b"parsed")
    answer_inputs(wire, lambda: _execute(running), limit)


def _execute(argv: list[str]) -> None:
    try:
        os.execvp(argv[0], argv)  # noqa: S606
    finally:
        os._exit(127)
