"""Python programs in one spelling each, so that equal ones compare equal; nothing is ever run."""

import ast
import re
import textwrap
import warnings

LONGEST_PARSED = 200_000
DEEPEST = 1_000
_SOURCE = "<candidate>"
_UNSEEN = {"ctx", "kind", "type_comment", "type_ignores"}
_IMPORT = re.compile(r"(?:import|from)\s")
# A quote that is never closed takes the rest of its line, so that no line is read twice.
_COMMENT = re.compile(r"""("(?:\\.?|[^"\\])*+"?|'(?:\\.?|[^'\\])*+'?)|#.*""")


class _Sign(str):
    """A piece of the spelling, as opposed to a text of the program."""

    __slots__ = ()


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
    if not tree.body:
        return ""
    words: list[str] = []
    pending: list[tuple[object, int]] = [(tree, 0)]
    while pending:
        item, depth = pending.pop()
        if depth > DEEPEST:
            raise RecursionError
        if isinstance(item, _Sign):
            words.append(item)
        elif isinstance(item, ast.AST):
            words.append(type(item).__name__)
            parts: list[object] = [_Sign("(")]
            for name, value in ast.iter_fields(item):
                if name not in _UNSEEN and value is not None and value != []:
                    parts += [_Sign(f"{name}="), value]
            pending += [(part, depth + 1) for part in (_Sign(")"), *reversed(parts))]
        elif isinstance(item, list):
            kept = [part for part in item if not _is_text(part)]
            parts = [_Sign("["), *(kept or item), _Sign("]")]
            pending += [(part, depth) for part in reversed(parts)]
        else:
            words.append(repr(item))
    return " ".join(words)


def _is_text(node: object) -> bool:
    """Whether a statement is nothing but a text: a docstring, or a comment in quotes.

    Where all statements are, they stay: a text can be all that was asked for.
    """
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
