"""Tests of a case, read from the formats they come in: examples with outputs, or test programs.

Whatever cannot be run is `InputError`, naming the field.
"""

import ast
import builtins
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from caps.core.errors import InputError
from caps.core.types import Case
from caps.sandbox.inside.plain import PLAIN_TYPES

_DEFINED = re.compile(r"^[ \t]*(?:async[ \t]+)?def[ \t]+(\w+)", re.MULTILINE)
_FOREIGN = ("inputs", "outputs")
PUBLIC = "tests.public"


@dataclass(frozen=True, slots=True)
class Example:
    """One input and what should come out: a text for standard input, or a list of arguments."""

    input: Any
    output: Any


@dataclass(frozen=True, slots=True)
class Examples:
    """Inputs with outputs. `style` is `either` where a function is known but inputs are texts.

    `public`: candidates may have been shown them, and there are no others.
    """

    tests: tuple[Example, ...]
    entry_point: str | None
    style: Literal["stdin", "call", "either"]
    public: bool = False


@dataclass(frozen=True, slots=True)
class TestProgram:
    """Assertions about a function; `missing` are names it expects of the candidate, `modules` of Python.

    Calling a name in `classes` returns an object by right.
    """

    __test__ = False  # no test of ours, for all its name

    source: str
    entry_point: str | None
    missing: tuple[str, ...]
    modules: tuple[str, ...]
    classes: tuple[str, ...] = ()
    public: bool = False


def read_suite(case: Case) -> Examples | TestProgram:
    """Read the hidden tests of a case, or, where there are none, all given ones."""
    given = case.extra.get("tests")
    if isinstance(given, str) and given.lstrip()[:1] in ("[", "{"):
        given = _value(given)
    found: Mapping[str, Any] = given if isinstance(given, dict) else {}
    entry = _entry_point(case.extra, found)
    where, tests = "tests", given
    if "hidden" in found or "public" in found:
        where = "tests.hidden" if found.get("hidden") else PUBLIC
        tests = found.get(where.partition(".")[2])
    elif all(isinstance(found.get(name), list) for name in _FOREIGN):
        if len(found["inputs"]) != len(found["outputs"]):
            raise InputError("tests: there are not as many outputs as inputs")
        pairs = zip(found["inputs"], found["outputs"], strict=True)
        tests = [{"input": text, "output": output} for text, output in pairs]
    if isinstance(tests, list) and tests and all(isinstance(test, str) for test in tests):
        tests = "\n".join(tests)
    if isinstance(tests, str) and tests.strip():
        return _program(tests, entry, where, case)
    if not isinstance(tests, list) or not tests:
        raise InputError(f"{where}: holds no tests; a list of inputs and outputs or a test program is wanted")
    suite = _examples(tests, entry, where, started=_started(case.extra, found))
    return replace(suite, public=where == PUBLIC)


def function_of(extra: Mapping[str, Any]) -> str | None:
    """The function a case is about: as named, or as its code to start from defines it."""
    return _entry_point(extra, {}) or _started(extra, {})


def _entry_point(extra: Mapping[str, Any], tests: Mapping[str, Any]) -> str | None:
    """The function under test, as named."""
    named = (source.get(name) for source in (tests, extra) for name in ("entry_point", "fn_name"))
    return next((str(name) for name in named if name), None)


def _started(extra: Mapping[str, Any], tests: Mapping[str, Any]) -> str | None:
    """The function that the code to start from defines."""
    texts = (str(source.get("starter_code") or "") for source in (tests, extra))
    return next((names[-1] for names in map(_DEFINED.findall, texts) if names), None)


def _program(source: str, entry: str | None, where: str, case: Case) -> TestProgram:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{where}: the test program does not parse: {error}") from None
    missing = _free(tree) - {"candidate"}
    calls = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    modules = (missing & sys.stdlib_module_names) - calls  # nobody calls a module
    wanted = tuple(sorted(missing - modules))
    made = _returning_objects(tree)
    if "candidate" in made and entry:
        made.add(entry)
    classes = tuple(name for name in (*wanted, entry) if name and (name in made or _is_class(name, case)))
    return TestProgram(source, entry, wanted, tuple(sorted(modules)), classes, where == PUBLIC)


def _returning_objects(tree: ast.Module) -> set[str]:
    """Functions of whose results the tests want something that no plain data has: an attribute, a method."""
    makers: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=variable)], value=ast.Call(func=ast.Name(id=function))):
                makers.setdefault(variable, set()).add(function)
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) if any(hasattr(kind, name) for kind in PLAIN_TYPES):
                continue
            case ast.Attribute(value=ast.Name(id=variable)):
                found |= makers.get(variable, set())
            case ast.Attribute(value=ast.Call(func=ast.Name(id=function))):
                found.add(function)
    return found


def _is_class(name: str, case: Case) -> bool:
    """Whether a name is meant to be a class: it is written like one, or the problem defines it as one.

    The candidate has no say: one that brings a class in place of a function could pass off objects as texts.
    """
    texts = (case.problem.text, str(case.extra.get("starter_code") or ""))
    defined = re.compile(rf"^[ \t]*(class|def)[ \t]+{re.escape(name)}\b", re.MULTILINE)
    found = next((match[1] for match in map(defined.search, texts) if match), None)
    return found == "class" if found else name[:1].isupper() and "_" not in name


def _free(tree: ast.Module) -> set[str]:
    """Names that are used and nowhere bound."""
    used: set[str] = set()
    bound = set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
    return used - bound


def _examples(tests: Iterable[Any], entry: str | None, where: str, *, started: str | None) -> Examples:
    """Texts go to standard input unless a function is named; arguments also to that of the starter code."""
    items, kinds = [], set()
    for place, test in enumerate(tests):
        if not isinstance(test, dict) or "input" not in test or "output" not in test:
            raise InputError(f"{where}[{place}]: an object with input and output is wanted")
        items.append(Example(test["input"], test["output"]))
        kinds.add(_kind(test, f"{where}[{place}]"))
    if len(kinds) > 1:
        raise InputError(
            f"{where}: inputs of different kinds ({', '.join(sorted(kinds))}); all must be alike"
        )
    kind = kinds.pop()
    if kind == "stdin" or (kind == "text" and entry is None):
        return Examples(tuple(items), entry, "stdin")
    entry = entry or started
    if entry is None:
        raise InputError(f"{where}: inputs are arguments, but no entry_point says of which function")
    return Examples(tuple(items), entry, "either" if kind == "text" else "call")


def _kind(test: Mapping[str, Any], where: str) -> str:
    is_text = isinstance(test["input"], str)
    kind = str(test.get("testtype") or ("text" if is_text else "functional"))
    if kind not in ("stdin", "functional", "text"):
        raise InputError(f"{where}.testtype: {kind!r} is neither stdin nor functional")
    if kind == "stdin" and not is_text:
        raise InputError(f"{where}.input: a text is wanted for standard input")
    return kind


def arguments(text: Any) -> list[Any]:
    """Arguments as given, or one a line of a text."""
    if isinstance(text, str):
        return [_value(line) for line in text.split("\n")] if text.strip() else [text]
    return text if isinstance(text, list) else [text]


def _value(text: str) -> Any:
    """What a text says as JSON, or else in Python, or else the text itself."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return text


def expected_values(example: Example) -> list[Any]:
    """Results that count as right; some collections wrap the one result in a list."""
    if isinstance(example.output, str) and isinstance(example.input, str):
        return [_value(example.output)]
    if isinstance(example.input, str) and isinstance(example.output, list) and len(example.output) == 1:
        return [example.output[0], example.output]
    return [example.output]


def expected_text(example: Example) -> str:
    """What should stand on standard output."""
    if isinstance(example.output, list):
        return "\n".join(str(line) for line in example.output)
    return str(example.output)
