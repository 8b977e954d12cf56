"""Programs in JavaScript, C++ and Java: run, graded and compared like those in Python."""

import asyncio

import pytest

from caps.cli.doctor import check_toolchain
from caps.core.errors import InputError, UserError
from caps.core.types import Candidate, Case, Problem
from caps.findings.programs import BehaviourFinder
from caps.grading.code import CodeGrader, language_of
from caps.sandbox import languages
from caps.sandbox.base import Limits
from caps.sandbox.languages import TOOLCHAINS, language_named
from caps.sandbox.launchers import find_sandbox
from support.closing import closing
from support.sandboxing import needs_bubblewrap

TESTS = {
    "public": [{"input": "1 2\n", "output": "3\n"}],
    "hidden": [{"input": "4 5\n", "output": "9\n"}, {"input": "0 0\n", "output": "0\n"}],
}
SUMS = {
    "javascript": "const [a, b] = require('fs').readFileSync('/dev/stdin', 'utf8').split(/\\s+/).map(Number);\n"
    "console.log(a + b);",
    "cpp": '#include <cstdio>\nint main() { long a, b; scanf("%ld %ld", &a, &b); printf("%ld\\n", a + b); }',
    "java": "import java.util.Scanner;\nclass Add { public static void main(String[] args) {\n"
    "Scanner in = new Scanner(System.in); System.out.println(in.nextLong() + in.nextLong()); } }",
}


def case(*texts, **extra):
    return Case(
        "1", Problem.of("Add."), tuple(map(Candidate, texts)), "code", extra={"tests": TESTS, **extra}
    )


def fenced(label, source):
    return f"Here:\n```{label}\n{source}\n```"


def has(language):
    return pytest.mark.skipif(TOOLCHAINS[language].missing is not None, reason=f"no tools for {language}")


async def grade(one):
    async with closing(CodeGrader(await find_sandbox(), Limits(seconds=10))) as grader:
        return [await grader.grade(one, candidate) for candidate in one.candidates]


async def find(one, **settings):
    async with closing(BehaviourFinder(**settings)) as finder:
        return await finder.find(one)


@needs_bubblewrap
@pytest.mark.parametrize("language", [pytest.param(one, marks=has(one)) for one in SUMS])
def test_programs_of_each_language_are_graded_by_their_output(language):
    right = SUMS[language]
    one = case(
        fenced(language, right),
        fenced(language, right.replace("+ b", "- b").replace("+ in", "- in")),
        fenced(language, right[:-4]),
    )
    grades = asyncio.run(grade(one))
    assert [each.correct for each in grades] == [True, False, False]
    assert grades[2].reason == "does not parse"


@needs_bubblewrap
@pytest.mark.skipif(TOOLCHAINS["cpp"].missing is not None, reason="no g++")
def test_programs_of_two_languages_that_do_the_same_are_alike():
    python = "a, b = map(int, input().split())\nprint(a + b)"
    found = asyncio.run(find(case(fenced("cpp", SUMS["cpp"]), fenced("python", python)), further=32))
    assert found[0].cluster == found[1].cluster is not None
    assert [one.passed for one in found] == [1, 1]


def test_the_language_is_that_of_the_fence_then_of_the_case():
    assert language_of(case("x"), Candidate(fenced("C++", "int main() {}"))) == "cpp"
    assert language_of(case("x", language="java"), Candidate(fenced("", "class A {}"))) == "java"
    assert language_of(case("x", language="java"), Candidate(fenced("js", "1"))) == "javascript"
    assert language_of(case("x", language="java"), Candidate("?", code="class A {}")) == "java"
    assert language_of(case("x"), Candidate(fenced("text", "print(1)"))) == "python"
    assert language_named("COBOL") is None


@pytest.fixture
def bare_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(languages, "ENVIRONMENT", {"PATH": str(tmp_path)})


@needs_bubblewrap
def test_a_missing_tool_is_named_with_what_installs_it(bare_machine):
    one = case(fenced("js", SUMS["javascript"]))
    with pytest.raises(InputError, match="node is not installed: apt-get install nodejs"):
        asyncio.run(grade(one))
    with pytest.raises(UserError, match="node is not installed"):
        asyncio.run(find(one))
    mixed = case(fenced("js", SUMS["javascript"]), fenced("python", "print(sum(map(int, input().split())))"))
    missing, ran = asyncio.run(find(mixed, further=32))
    assert "node is not installed" in missing.note
    assert (missing.parses, ran.passed) == (None, 1)
    check = check_toolchain(TOOLCHAINS["javascript"])
    assert (check.state, check.mend) == ("missing", "apt-get install nodejs")


@needs_bubblewrap
def test_functions_are_called_in_python_only():
    one = Case(
        "1", Problem.of("Add."), (Candidate(fenced("js", "function f(a) {}")),), "code",
        extra={"tests": "def check(candidate):\n    assert candidate(1) == 1", "entry_point": "f"},
    )  # fmt: skip
    (found,) = asyncio.run(grade(one))
    assert found.correct is None
    assert "Python only" in found.detail
