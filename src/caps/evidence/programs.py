"""Python programs in one spelling each, so that equal ones compare equal; nothing is ever run."""

import ast
import re
import textwrap
import warnings
from functools import cache

LONGEST_PARSED = 200_000
DEEPEST = 1_000
_SOURCE = "<candidate>"
_UNSEEN = {"ctx", "kind", "type_comment", "type_ignores"}
_IMPORT = re.compile(r"(?:import|from)\s")
# A quote that is never closed takes the rest of its line, so that no line is read twice.
_COMMENT = re.compile(r"""("(?:\\.?|[^"\\])*+"?|'(?:\\.?|[^'\\])*+'?)|#.*""")


def shape(program: str) -> str | None:
    """Spell out the syntax tree without positions and docstrings; nothing for what is not Python.

    Empty for a program that does nothing. An own spelling rather than `ast.dump`, which recurses and
    differs between versions of Python.
    """
    if len(program) > LONGEST_PARSED:
        return None
    program = program.strip("\r\n")
    if program[:1].isspace():
        program = textwrap.dedent(program)
    _silence_warnings()
    try:
        return _spell(ast.parse(program, filename=_SOURCE))
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
    mine: object = re.compile(_SOURCE)
    if not warnings.filters or warnings.filters[0][3] != mine:
        warnings.filterwarnings("ignore", module=_SOURCE)


def _spell(tree: ast.Module) -> str:
    """Words in the order of the tree, not recursing; what is pending is a word, or a node and its depth."""
    if not tree.body:
        return ""
    words: list[str] = []
    pending: list[str | tuple[ast.AST, int]] = [(tree, 0)]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            words.append(item)
        elif item[1] < DEEPEST:
            pending += reversed(_parts(*item))
        else:
            raise RecursionError
    return " ".join(words)


def _parts(node: ast.AST, depth: int) -> list[str | tuple[ast.AST, int]]:
    """What a node says itself, and the nodes in it where they stand."""
    parts: list[str | tuple[ast.AST, int]] = [f"{type(node).__name__} ("]
    for name, sign in _counted(node._fields):
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            parts += (sign, (value, depth + 1))
        elif isinstance(value, list):
            kept = [part for part in value if not _is_text(part)] or value
            inner = [(one, depth + 1) if isinstance(one, ast.AST) else repr(one) for one in kept]
            parts += (sign, "[", *inner, "]") if inner else ()
        elif value is not None:
            parts.append(f"{sign} {value!r}")
    return [*parts, ")"]


@cache
def _counted(fields: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Those fields of a node that count, each with the word that announces it."""
    return tuple((name, f"{name}=") for name in fields if name not in _UNSEEN)


def _is_text(node: object) -> bool:
    """Whether a statement is nothing but a text: a docstring, or a comment in quotes.

    Where all statements are, they stay: a text can be all that was asked for.
    """
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
