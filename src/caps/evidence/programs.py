"""Normalised forms of programs, so that equal programs compare equal; nothing is run."""

import ast
import re
import textwrap
import warnings
from typing import Any

DEEPEST = 1_000  # levels of a syntax tree
_IGNORED_FIELDS = {"ctx", "kind", "type_comment", "type_ignores"}
_CLOSING = object()


def _spell(tree: ast.Module) -> str:
    """Write a syntax tree without positions and docstrings; raises `RecursionError` if it is too deep.

    Not `ast.dump`: that recurses, so the depth of its caller decides which programs it can read, and what it
    writes differs between versions of Python.
    """
    written: list[str] = []
    waiting: list[tuple[str, Any, int]] = [("", tree, 1)]  # a label, its value, and the level of the value
    while waiting:
        label, value, level = waiting.pop()
        if value is _CLOSING:
            written.append(label)
        elif isinstance(value, list):
            if value:
                written.append(f"{label}[")
                waiting.append(("]", _CLOSING, level))
                waiting += [("", item, level) for item in reversed(_without_docstrings(value))]
        elif isinstance(value, ast.AST):
            if level > DEEPEST:
                raise RecursionError
            written.append(f"{label}{type(value).__name__} (")
            waiting.append((")", _CLOSING, level))
            fields = [field for field in ast.iter_fields(value) if field[0] not in _IGNORED_FIELDS]
            waiting += [(f"{name}= ", item, level + 1) for name, item in reversed(fields)]
        elif value is not None or not label:  # None in a list counts: it keeps the places of the others
            written.append(f"{label}{value!r}")
    return " ".join(written)


def _without_docstrings(parts: list[Any]) -> list[Any]:
    """The statements that are not string literals, that is docstrings or comments in quotes.

    If all are string literals they stay: a program may consist of just a text.
    """
    return [part for part in parts if not isinstance(part, ast.Expr) or not _is_text(part.value)] or parts


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


LONGEST_PARSED = 50_000  # characters: 0.1 s, and ten times a long program
_SOURCE = "<candidate>"
_SOURCE_PATTERN: object = re.compile(_SOURCE)
_IMPORT = re.compile(r"(?:import|from)\s")
# An unclosed quote takes the rest of its line, so that no line is scanned twice.
_COMMENT = re.compile(r"""("(?:\\.?|[^"\\])*+"?|'(?:\\.?|[^'\\])*+'?)|#.*""")


def shape(program: str) -> str | None:
    """The normalised syntax tree of a program; None if it is not Python, empty if it does nothing."""
    if len(program) > LONGEST_PARSED:
        return None
    program = program.strip("\r\n")
    if program[:1].isspace():
        program = textwrap.dedent(program)
    _silence_warnings()
    try:
        tree = ast.parse(program, filename=_SOURCE)
        return _spell(tree) if tree.body else ""
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def tidy_lines(program: str) -> str:
    """The lines of a program in any language without blank lines and comments; indentation stays.

    `#` before a letter stays: `#define` is not a comment.
    """
    lines = (line.rstrip() for line in program.splitlines())
    return "\n".join(line for line in lines if line and not re.match(r"\s*#(?![a-z])", line))


def bare_lines(program: str) -> str:
    """The lines of a program without imports, comments and indentation, as in the paper's appendix."""
    lines = (_COMMENT.sub(r"\1", line).strip() for line in program.splitlines())
    return "\n".join(line for line in lines if line and not _IMPORT.match(line))


def _silence_warnings() -> None:
    """Ignore parser warnings about candidates; under `-W error` they would be syntax errors.

    `warnings.catch_warnings` swaps the filters of the whole process and is not thread-safe. A filter that
    only matches candidates may stay.
    """
    if not warnings.filters or warnings.filters[0][3] != _SOURCE_PATTERN:
        warnings.filterwarnings("ignore", module=_SOURCE)
