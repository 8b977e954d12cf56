"""Python programs in one spelling each, so that equal ones compare equal; nothing is ever run."""

import ast
import re
import textwrap
import warnings

from caps.evidence.trees import spell

LONGEST_PARSED = 50_000  # characters: a tenth of a second, and ten times what anybody writes
_SOURCE = "<candidate>"
_MINE: object = re.compile(_SOURCE)
_IMPORT = re.compile(r"(?:import|from)\s")
# A quote that is never closed takes the rest of its line, so that no line is read twice.
_COMMENT = re.compile(r"""("(?:\\.?|[^"\\])*+"?|'(?:\\.?|[^'\\])*+'?)|#.*""")


def shape(program: str) -> str | None:
    """Spell out the syntax tree without positions and docstrings; nothing for what is not Python.

    Empty for a program that does nothing.
    """
    if len(program) > LONGEST_PARSED:
        return None
    program = program.strip("\r\n")
    if program[:1].isspace():
        program = textwrap.dedent(program)
    _silence_warnings()
    try:
        return spell(ast.parse(program, filename=_SOURCE))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def tidy_lines(program: str) -> str:
    """The lines of a program in any language that say something, indentation kept.

    A `#` before a letter stays: `#define` is no comment.
    """
    lines = (line.rstrip() for line in program.splitlines())
    return "\n".join(line for line in lines if line and not re.match(r"\s*#(?![a-z])", line))


def bare_lines(program: str) -> str:
    """The lines of a program without imports, comments and indentation, as in the paper's appendix."""
    lines = (_COMMENT.sub(r"\1", line).strip() for line in program.splitlines())
    return "\n".join(line for line in lines if line and not _IMPORT.match(line))


def _silence_warnings() -> None:
    """Ignore what the parser warns of in candidates; under `-W error` it would be a syntax error.

    `warnings.catch_warnings` would swap the filters of the whole process, and two threads doing so can
    leave them swapped for good. A filter that only ever matches candidates may stay.
    """
    if not warnings.filters or warnings.filters[0][3] != _MINE:
        warnings.filterwarnings("ignore", module=_SOURCE)
