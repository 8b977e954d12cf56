"""Normalised forms of programs, so that equal programs compare equal; nothing is run."""

import ast
import keyword
import re
import textwrap
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import repeat
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

# Not `ast.dump`, which recurses and differs between versions of Python

DEEPEST = 1_000
_IGNORED_FIELDS = {"ctx", "kind", "type_comment", "type_ignores"}
_Fields: TypeAlias = Iterator[tuple[str, Any]]


def spell(tree: ast.Module) -> str:
    """Serialise a syntax tree without positions and docstrings; raises `RecursionError` if it is too deep.

    This takes as long as parsing, so it is optimised: open nodes and lists are a stack of iterators, and
    names and constants, which most nodes are, are written inline.
    """
    parts: list[str] = []
    append, name, constant, forms = parts.append, ast.Name, ast.Constant, _FORMS
    stack: list[tuple[_Fields, str, int]] = []
    current: _Fields = iter([("", tree)] if tree.body else [])
    end, depth = "", 0
    while True:
        for sign, value in current:
            kind = value.__class__
            if kind is name:
                append(f"{sign}Name ( id= {value.id!r} )")
            elif kind is constant and value.value is not None:
                append(f"{sign}Constant ( value= {value.value!r} )")
            elif kind is list:
                if value:
                    append(f"{sign}[")
                    stack.append((current, end, depth))
                    current, end = (
                        zip(repeat(""), _without_docstrings(value) if len(value) > 1 else value),
                        "]",
                    )
                    break
            elif form := forms[kind]:
                opening, signs, values = form
                append(f"{sign}{opening}")
                if signs:
                    stack.append((current, end, depth))
                    current, end, depth = zip(signs, values(value), strict=False), ")", depth + 1
                    if depth == DEEPEST:
                        current = _childless(current)
                    break
            elif value is not None or not sign:
                append(f"{sign}{value!r}")
        else:
            if not stack:
                return " ".join(parts)
            append(end)
            current, end, depth = stack.pop()


class _Form(NamedTuple):
    """How a kind of node is written: its opening, the labels of its fields, and a getter of their values."""

    opening: str
    signs: tuple[str, ...]
    values: Callable[[Any], tuple[Any, ...]]


class _Forms(dict[type, _Form | None]):
    """A cache of forms by type; None for types that are not nodes."""

    def __missing__(self, kind: type) -> _Form | None:
        self[kind] = form = _form(kind) if issubclass(kind, ast.AST) else None
        return form


def _form(kind: type[ast.AST]) -> _Form:
    names = [name for name in kind._fields if name not in _IGNORED_FIELDS]
    opening = f"{kind.__name__} (" if names else f"{kind.__name__} ( )"
    # The extra attribute makes the result a tuple even for one field.
    return _Form(opening, tuple(f"{name}= " for name in names), attrgetter(*names, "_fields"))


_FORMS = _Forms()


def _childless(fields: Iterable[tuple[str, Any]]) -> _Fields:
    """The fields of a node at the maximum depth, which may contain no further node."""
    for sign, value in fields:
        if any(isinstance(one, ast.AST) for one in (value if isinstance(value, list) else [value])):
            raise RecursionError
        yield sign, value


def _without_docstrings(parts: list[Any]) -> list[Any]:
    """The statements that are not string literals, that is docstrings or comments in quotes.

    If all are string literals they stay: a program may consist of just a text.
    """
    statement = ast.Expr
    return [part for part in parts if part.__class__ is not statement or not _is_text(part.value)] or parts


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
        return spell(ast.parse(program, filename=_SOURCE))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


# Strings and comments. An unclosed string takes the rest of its line, or of the text, so that nothing is
# scanned twice. All begin with a plain character, which lets the search skip everything else.
_NOTHING = re.compile(
    r"""\"""(?:\\.|[^\\])*?(?:\"""|\\?\Z)|\'\'\'(?:\\.|[^\\])*?(?:\'\'\'|\\?\Z)"""
    r"""|"(?:\\.|[^"\\\n])*+(?:"|(?=\n)|\\?\Z)|'(?:\\.|[^'\\\n])*+(?:'|(?=\n)|\\?\Z)|\#[^\n]*""",
    re.DOTALL,
)
_FORMATTED = re.compile(r"""(?<!\w)[rR]?[fFtT][rR]?["']""")
_PREFIX = re.compile(r"""(?<!\w)[A-Za-z]{1,2}(?=["'])""")
_NAME_OR_NUMBER = re.compile(
    r"[A-Za-z_]\w*|0[xXbBoO]\w{1,400}"
    r"|(?:\d[\d_]{0,400}\.?[\d_]{0,400}|\.\d[\d_]{0,400})(?:[eE][-+]?\d[\d_]{0,8})?[jJ]?"
)
_OPERATORS = "*/%<>=!&|^~@"  # not the signs, which numbers have too
_KEYWORDS = frozenset(keyword.kwlist)


def words_of(program: str) -> tuple[object, ...] | None:
    """The names, numbers and operators of a program: equal for programs with the same syntax tree.

    It costs a fifth of parsing, and tells most different programs apart. Programs with formatted strings, in
    which names count, are not told from one another. None if it cannot tell at all: names beyond ASCII may be
    written in several ways.
    """
    prefixed = False

    def without_content(found: re.Match[str]) -> str:
        nonlocal prefixed
        at = found.start()
        if program[at] == "#":
            return " "
        prefixed = prefixed or program[at - 1 : at].isalpha()
        return f"{program[at]} "

    rest = _NOTHING.sub(without_content, program)
    if prefixed and _FORMATTED.search(rest):
        return ()
    if not rest.isascii():
        return None
    if prefixed:
        rest = _PREFIX.sub("", rest)
    names, numbers = set(), Counter[str]()
    for word, count in Counter(_NAME_OR_NUMBER.findall(rest)).items():
        if word[0] in "0123456789.":
            numbers[_number(word)] += count
        elif word not in _KEYWORDS:
            names.add((word, count))
    return frozenset(names), frozenset(numbers.items()), *map(rest.count, _OPERATORS)


@lru_cache(maxsize=1024)
def _number(written: str) -> str:
    """The value of a number in one form; nothing if it is none."""
    for read in (lambda text: int(text, 0), float, complex):
        with suppress(ValueError):
            return repr(read(written))
    return ""


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
