"""Tests of a case, parsed from their formats: examples with outputs, or test programs.

Tests that cannot be run raise `InputError`, which names the field.
"""

import ast
import builtins
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from caps.core.errors import InputError
from caps.core.text import UNPARSABLE
from caps.core.types import Case
from caps.sandbox.inside.plain import PLAIN_TYPES, encode

_DEFINED = re.compile(r"^[ \t]*(?:async[ \t]+)?def[ \t]+(\w+)", re.MULTILINE)
_COLUMNS = ("inputs", "outputs")
PUBLIC = "tests.public"
MAX_ASSERTIONS = 20  # that are run one by one
Style: TypeAlias = Literal["stdin", "call", "either"]


@dataclass(frozen=True, slots=True)
class Example:
    """One input (a text for standard input, or a list of arguments) and its expected output."""

    input: Any
    output: Any


@dataclass(frozen=True, slots=True)
class Examples:
    """Inputs with outputs. `style` is `either` if a function is known but inputs are texts.

    `public`: there are no hidden tests, and candidates may have seen these.
    """

    tests: tuple[Example, ...]
    entry_point: str | None
    style: Style
    public: bool = False


@dataclass(frozen=True, slots=True)
class TestProgram:
    """Assertions about a function; the candidate defines the names in `missing`, Python those in `modules`.

    Calling a name in `classes` may return an object.
    """

    __test__ = False  # not a pytest class

    source: str
    entry_point: str | None
    missing: tuple[str, ...]
    modules: tuple[str, ...]
    classes: tuple[str, ...] = ()
    public: bool = False


def public_tests(extra: Mapping[str, Any]) -> dict[str, Any] | None:
    """The field `tests` of a case without its hidden tests; None unless some are declared public.

    Only these may be used to choose: tests that are declared neither public nor hidden count as hidden.
    """
    tests = _stated_tests(extra)
    if not isinstance(tests, dict) or not tests.get("public"):
        return None
    return {name: value for name, value in tests.items() if name != "hidden"}


def has_undeclared_tests(extra: Mapping[str, Any]) -> bool:
    """Whether a case has tests that are declared neither public nor hidden."""
    tests = _stated_tests(extra)
    return bool(tests) and not (isinstance(tests, dict) and {"public", "hidden"} & tests.keys())


def read_public_suite(case: Case) -> Examples | TestProgram | None:
    """Parse the public tests of a case; None if it declares none."""
    public = public_tests(case.extra)
    return None if public is None else read_suite(replace(case, extra={**case.extra, "tests": public}))


def read_suite(case: Case) -> Examples | TestProgram:
    """Parse the hidden tests of a case, or the public ones if there are no others."""
    field = _stated_tests(case.extra)
    groups: Mapping[str, Any] = field if isinstance(field, dict) else {}
    entry = _entry_point(case.extra, groups)
    where, tests = "tests", field
    if "hidden" in groups or "public" in groups:
        where = "tests.hidden" if groups.get("hidden") else PUBLIC
        tests = groups.get(where.partition(".")[2])
    elif all(isinstance(groups.get(name), list) for name in _COLUMNS):
        if len(groups["inputs"]) != len(groups["outputs"]):
            raise InputError("tests: the numbers of inputs and outputs differ")
        pairs = zip(groups["inputs"], groups["outputs"], strict=True)
        tests = [{"input": text, "output": output} for text, output in pairs]
    if isinstance(tests, list) and tests and all(isinstance(test, str) for test in tests):
        tests = "\n".join(tests)
    if isinstance(tests, str) and tests.strip():
        return _program(tests, entry, where, case)
    if not isinstance(tests, list) or not tests:
        raise InputError(f"{where}: contains no tests; give a list of inputs and outputs, or a test program")
    suite = _examples(tests, entry, where, starter=_starter_function(case.extra, groups))
    return replace(suite, public=where == PUBLIC)


def assertions_of(suite: TestProgram) -> tuple[TestProgram, ...]:
    """One program for each assertion at the top level about the candidate, after the statements before it.

    A program without them, such as one with a `check(candidate)`, or with very many is one test.
    """
    tested = {*suite.missing, suite.entry_point, "candidate"}
    setup, assertions = list[str](), list[str]()
    try:
        for statement in ast.parse(suite.source).body:
            source = ast.unparse(statement)
            names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
            if isinstance(statement, ast.Assert) and names & tested:
                assertions.append("\n".join([*setup, source]))
            else:
                setup.append(source)
    except UNPARSABLE:
        return (suite,)
    if not 1 < len(assertions) <= MAX_ASSERTIONS:
        return (suite,)
    return tuple(replace(suite, source=source) for source in assertions)


def _stated_tests(extra: Mapping[str, Any]) -> Any:
    """The field `tests`, also where a table has it as JSON text."""
    tests = extra.get("tests")
    return _value(tests) if isinstance(tests, str) and tests.lstrip()[:1] in ("[", "{") else tests


def function_of(extra: Mapping[str, Any]) -> str | None:
    """The function of a case: the named one, or the one that its starter code defines."""
    return _entry_point(extra, {}) or _starter_function(extra, {})


def _entry_point(extra: Mapping[str, Any], tests: Mapping[str, Any]) -> str | None:
    """The named function under test."""
    named = (source.get(name) for source in (tests, extra) for name in ("entry_point", "fn_name"))
    return next((str(name) for name in named if name), None)


def _starter_function(extra: Mapping[str, Any], tests: Mapping[str, Any]) -> str | None:
    """The function that the starter code defines."""
    texts = (str(source.get("starter_code") or "") for source in (tests, extra))
    return next((names[-1] for names in map(_DEFINED.findall, texts) if names), None)


def _program(source: str, entry: str | None, where: str, case: Case) -> TestProgram:
    try:
        tree = ast.parse(source)
    except UNPARSABLE as error:
        raise InputError(f"{where}: the test program does not parse: {error}") from None
    missing = _unbound_names(tree) - {"candidate"}
    calls = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    modules = (missing & sys.stdlib_module_names) - calls  # a module cannot be called
    names = tuple(sorted(missing - modules))
    factories = _returning_stateful(tree)
    if "candidate" in factories and entry:
        factories.add(entry)
    classes = tuple(name for name in (*names, entry) if name and (name in factories or _is_class(name, case)))
    return TestProgram(source, entry, names, tuple(sorted(modules)), classes, where == PUBLIC)


def _returning_stateful(tree: ast.Module) -> set[str]:
    """Names that the tests use as classes: methods of the result are called for their effect alone.

    The result must also have an attribute that plain data lacks: `values.sort()` is said of a list.
    """
    makers: dict[str, set[str]] = {}
    changed, no_plain_data = set[str](), set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=variable)], value=ast.Call(func=ast.Name(id=function))):
                makers.setdefault(variable, set()).add(function)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=variable)))):
                changed.add(variable)
            case ast.Attribute(value=ast.Name(id=variable), attr=name):
                if not any(hasattr(kind, name) for kind in PLAIN_TYPES):
                    no_plain_data.add(variable)
    return set().union(*(makers.get(variable, set()) for variable in changed & no_plain_data))


def _is_class(name: str, case: Case) -> bool:
    """Whether a name should be a class: it is written like one, or the problem defines it as one.

    The candidate does not decide this: with a class in index of a function it could pass objects off as
    texts.
    """
    texts = (case.problem.text, str(case.extra.get("starter_code") or ""))
    defined = re.compile(rf"^[ \t]*(class|def)[ \t]+{re.escape(name)}\b", re.MULTILINE)
    keyword = next((match[1] for match in map(defined.search, texts) if match), None)
    return keyword == "class" if keyword else name[:1].isupper() and "_" not in name


def _unbound_names(tree: ast.Module) -> set[str]:
    """Names that are used but never bound."""
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


def _examples(tests: Iterable[Any], entry: str | None, where: str, *, starter: str | None) -> Examples:
    """Texts go to standard input unless a function is named; arguments to that or the starter function."""
    items, kinds = [], set()
    for index, test in enumerate(tests):
        if not isinstance(test, dict) or "input" not in test or "output" not in test:
            raise InputError(f"{where}[{index}]: must be an object with input and output")
        items.append(Example(test["input"], test["output"]))
        kinds.add(_kind(test, f"{where}[{index}]"))
    if len(kinds) > 1:
        raise InputError(
            f"{where}: inputs of different kinds ({', '.join(sorted(kinds))}); all must be of one kind"
        )
    kind = kinds.pop()
    if kind == "stdin" or (kind == "text" and entry is None):
        return Examples(tuple(items), entry, "stdin")
    entry = entry or starter
    if entry is None:
        raise InputError(f"{where}: inputs are arguments, but entry_point does not name the function")
    return Examples(tuple(items), entry, "either" if kind == "text" else "call")


def _kind(test: Mapping[str, Any], where: str) -> str:
    is_text = isinstance(test["input"], str)
    kind = str(test.get("testtype") or ("text" if is_text else "functional"))
    if kind not in ("stdin", "functional", "text"):
        raise InputError(f"{where}.testtype: {kind!r} is neither stdin nor functional")
    if kind == "stdin" and not is_text:
        raise InputError(f"{where}.input: must be a text for standard input")
    return kind


def arguments(text: Any) -> list[Any]:
    """The list of arguments, or one argument per line of a text."""
    if isinstance(text, str):
        return [_value(line) for line in text.split("\n")] if text.strip() else [text]
    return text if isinstance(text, list) else [text]


def _value(text: str) -> Any:
    """Parse a text as JSON, else as a Python literal, else return the text itself."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except UNPARSABLE:
            continue
    return text


def accepted_outputs(example: Example, kind: Literal["text", "value"]) -> list[bytes]:
    """Outputs that count as correct, as a program would print or return them."""
    if kind == "text":
        return [expected_text(example).encode("utf-8", "surrogatepass")]
    try:
        return [encode(value) for value in _expected_values(example)]
    except (ValueError, TypeError) as error:
        raise InputError(f"tests: no program can return an expected output: {error}") from None


def _expected_values(example: Example) -> list[Any]:
    """Results that count as correct; some datasets wrap the one result in a list."""
    if isinstance(example.output, str) and isinstance(example.input, str):
        return [_value(example.output)]
    if isinstance(example.input, str) and isinstance(example.output, list) and len(example.output) == 1:
        return [example.output[0], example.output]
    return [example.output]


def expected_text(example: Example) -> str:
    """The expected standard output."""
    if isinstance(example.output, list):
        return "\n".join(str(line) for line in example.output)
    return str(example.output)
