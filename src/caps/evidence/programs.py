"""Python programs in one normalised spelling each, so that equal ones compare equal; nothing is run."""

import ast
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

# Syntax trees spelled out in words: an own spelling, for `ast.dump` recurses and differs between Pythons.


DEEPEST = 1_000
_UNSEEN = {"ctx", "kind", "type_comment", "type_ignores"}
_Fields: TypeAlias = Iterator[tuple[str, Any]]


def spell(tree: ast.Module) -> str:
    """All of a tree but positions and docstrings, in the order of the tree; `RecursionError` if too deep.

    Nothing else done to a program but parsing it takes as long. So what is left of the nodes and lists around
    is a stack of iterators, and names and constants, which most nodes are, are spelled where they are met.
    """
    words: list[str] = []
    say, name, constant, forms = words.append, ast.Name, ast.Constant, _FORMS
    above: list[tuple[_Fields, str, int]] = []
    here: _Fields = iter([("", tree)] if tree.body else [])
    end, depth = "", 0
    while True:
        for sign, value in here:
            kind = value.__class__
            if kind is name:
                say(f"{sign}Name ( id= {value.id!r} )")
            elif kind is constant and value.value is not None:
                say(f"{sign}Constant ( value= {value.value!r} )")
            elif kind is list:
                if value:
                    say(f"{sign}[")
                    above.append((here, end, depth))
                    here, end = zip(repeat(""), _kept(value) if len(value) > 1 else value), "]"
                    break
            elif form := forms[kind]:
                opening, signs, values = form
                say(f"{sign}{opening}")
                if signs:
                    above.append((here, end, depth))
                    here, end, depth = zip(signs, values(value), strict=False), ")", depth + 1
                    if depth == DEEPEST:
                        here = _childless(here)
                    break
            elif value is not None or not sign:
                say(f"{sign}{value!r}")
        else:
            if not above:
                return " ".join(words)
            say(end)
            here, end, depth = above.pop()


class _Form(NamedTuple):
    """What opens a kind of node (all of it, where no field counts), words before its fields, and these."""

    opening: str
    signs: tuple[str, ...]
    values: Callable[[Any], tuple[Any, ...]]


class _Forms(dict[type, _Form | None]):
    """The form of each kind of node met so far; none of what is no node."""

    def __missing__(self, kind: type) -> _Form | None:
        self[kind] = form = _form(kind) if issubclass(kind, ast.AST) else None
        return form


def _form(kind: type[ast.AST]) -> _Form:
    names = [name for name in kind._fields if name not in _UNSEEN]
    opening = f"{kind.__name__} (" if names else f"{kind.__name__} ( )"
    # One more attribute, so that it is a tuple even of one field.
    return _Form(opening, tuple(f"{name}= " for name in names), attrgetter(*names, "_fields"))


_FORMS = _Forms()


def _childless(fields: Iterable[tuple[str, Any]]) -> _Fields:
    """The fields of a node so deep that no node may be in it."""
    for sign, value in fields:
        if any(isinstance(one, ast.AST) for one in (value if isinstance(value, list) else [value])):
            raise RecursionError
        yield sign, value


def _kept(parts: list[Any]) -> list[Any]:
    """The parts that are more than a text, which is a docstring or a comment in quotes.

    Where all statements are, they stay: a text can be all that was asked for.
    """
    statement = ast.Expr
    return [part for part in parts if part.__class__ is not statement or not _is_text(part.value)] or parts


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


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
