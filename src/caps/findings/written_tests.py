"""Tests written by a model: inputs with expected outputs, and how far programs and tests agree.

One call for each case asks a model for tests. It never sees the candidates. Its tests may be wrong, so no
program is dismissed for failing one. As in CodeT (Chen et al. 2022), programs that pass the same tests form a
group, a group counts the more the more programs and the more tests it has, and the feature of a program is
the weight of its group, as a share of the heaviest. Replies are hostile: only a bounded list of bounded plain
values is taken from them, and the programs run in the sandbox of the grader.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from caps.core.domains import Opening
from caps.core.text import parse_json
from caps.core.types import Candidate, Case, Found, Usage
from caps.costs.budget import Budget, UnlimitedBudget
from caps.evidence.domains import INTERFACE, domain_named
from caps.grading.test_suites import function_of
from caps.journal.records import ReplyStore
from caps.judging.payment import USUAL_OUTPUT, ReplyHistory, lost_usage, pay
from caps.models.base import Completion, Model, Request
from caps.prompts.render import ask_for_answer, generation_name

KIND = "written tests"  # of the journal's facts, and the name under which the version is recorded
MAX_TOKENS = 4096
LONGEST_REPLY = 64_000  # characters
LONGEST_TEST = 2_000  # characters of an input or an output as JSON
_BLOCK = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)


class TestWriter:
    """Asks a model for tests of a case, runs the programs on them, and adds their agreement to the findings.

    Replies and results are journaled. Without a sandbox nothing is asked. A reply without usable tests, a
    failed call or an ended budget leaves the programs as they are; what was paid is in the case's `spent`.
    """

    __test__ = False  # pytest: not a test class

    def __init__(
        self,
        model: Model,
        name: str,
        templates: Mapping[str, str],
        *,
        count: int,
        grader: Opening,
        journal: ReplyStore | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        self._model, self._name, self._templates, self._count = model, name, templates, count
        self._opening, self._journal, self._extra = grader, journal, dict(extra or {})
        self._grader: Any = None
        self._history = ReplyHistory(USUAL_OUTPUT)
        self._lock = asyncio.Lock()

    @property
    def version(self) -> str:
        """What the agreement depends on beside the case."""
        return f"codet-1 {self._name} {self._count}"

    async def add(self, case: Case, until: float | None = None, budget: Budget | None = None) -> Case:
        """The case with the agreement of its programs with tests, and the tokens they cost."""
        if not applies(case):
            return case
        key = fact_key(self.version, case)
        stored = None if self._journal is None else await self._journal.recall_fact(KIND, key)
        if stored is not None:
            return with_agreement(case, stored)
        await self._open()  # before anything is paid
        spent, shares, finished = list[tuple[Usage, bool]](), list[float](), False
        request = self.request(case)
        try:
            async with asyncio.timeout_at(until):
                reply = await pay(self._model, request, budget or UnlimitedBudget(), self._history)
                if isinstance(reply, Completion):
                    spent.append((reply.usage, reply.replayed))
                    shares = await self._agreement(case, read_tests(reply.text, case, self._count))
                    finished = True
                elif reply.usage.estimated:
                    spent.append((reply.usage, False))
        except TimeoutError:  # next time the programs run again; a reply is in the journal
            if not spent:
                spent.append((lost_usage(request, 1, self._history), False))
        row = {"shares": shares, "usage": [usage.counts for usage, _ in spent]}
        if finished and self._journal is not None:
            await self._journal.record(KIND, key, row)
        return replace(with_agreement(case, row), spent=(*case.spent, *spent))

    async def close(self) -> None:
        """Stop the processes of the grader."""
        await self._model.close()
        if self._grader is not None:
            await self._grader.close()

    def request(self, case: Case) -> Request:
        """The request for tests of a case."""
        return request_for_tests(case, self._templates, self._name, self._count, self._extra)

    async def _agreement(self, case: Case, tests: Sequence[Mapping[str, Any]]) -> list[float]:
        programs = list(dict.fromkeys(case.candidates))
        passed = await asyncio.gather(*(self._passed(case, program, tests) for program in programs))
        by_program = dict(zip(programs, passed, strict=True))
        return agreement([by_program[candidate] for candidate in case.candidates])

    async def _open(self) -> None:
        async with self._lock:
            if self._grader is None:
                self._grader = await self._opening()

    async def _passed(
        self, case: Case, candidate: Candidate, tests: Sequence[Mapping[str, Any]]
    ) -> frozenset[int]:
        """Which tests a program passes."""
        passed = set()
        for place, test in enumerate(tests):
            tested = replace(case, extra={**case.extra, "tests": {"hidden": [test]}})
            grade = await self._grader.grade(tested, replace(candidate, correct=None, found=None))
            if grade.correct:
                passed.add(place)
        return frozenset(passed)


def applies(case: Case) -> bool:
    """Whether tests can be written for a case: its candidates are programs, and there is a choice."""
    return domain_named(case.domain).python_programs and len(set(case.candidates)) > 1


def request_for_tests(
    case: Case, templates: Mapping[str, str], model: str, count: int, extra: Mapping[str, object]
) -> Request:
    """The request for `count` tests of a case, from its statement alone."""
    function = function_of(case.extra)
    name = generation_name("tests", "code", function=function is not None)
    interface = str(case.extra.get("starter_code") or "") or f"`{function}`"
    template = templates[name].replace("{count}", str(count))
    messages = ask_for_answer(template, case.problem, interface=interface)
    return Request(
        messages,
        model,
        template=name,
        max_tokens=MAX_TOKENS,
        temperature=0.0,
        extra=extra,
        group=case.problem.text,
    )


def read_tests(reply: str, case: Case, count: int) -> list[dict[str, Any]]:
    """The tests in a reply, at most `count`; anything else in it is ignored."""
    if len(reply) > LONGEST_REPLY:
        return []
    blocks = _BLOCK.findall(reply)
    called = function_of(case.extra) is not None
    for text in (*reversed(blocks), reply[reply.find("[") : reply.rfind("]") + 1]):
        rows = parse_json(text, parse_constant=_no_constant)
        if isinstance(rows, list):
            usable = [row for row in rows if _is_test(row, called=called)]
            return [{"input": row["input"], "output": row["output"]} for row in usable[:count]]
    return []


def agreement(passed: Sequence[frozenset[int]]) -> list[float]:
    """The weight of each program's group, its programs times its tests, as a share of the heaviest.

    Empty if no program passes any test.
    """
    sizes = Counter(passed)
    heaviest = max((size * len(tests) for tests, size in sizes.items()), default=0)
    return [sizes[tests] * len(tests) / heaviest for tests in passed] if heaviest else []


def fact_key(version: str, case: Case) -> str:
    """The key of a fact: a digest of the writer, the problem and the candidates."""
    about = [case.extra.get(name) for name in (*INTERFACE, "language")]
    shown = [(candidate.text, candidate.code) for candidate in case.candidates]
    listed = [version, case.problem.text, about, shown]
    return sha256(json.dumps(listed, sort_keys=True, default=str).encode()).hexdigest()


def with_agreement(case: Case, stored: Any) -> Case:
    """The case with stored agreement; its tokens count as replayed."""
    candidates = case.candidates
    if stored["shares"]:
        pairs = zip(candidates, stored["shares"], strict=True)
        candidates = tuple(
            replace(one, found=replace(one.found or Found(), written=float(share))) for one, share in pairs
        )
    spent = tuple((Usage(*counts), True) for counts in stored["usage"])
    return replace(case, candidates=candidates, spent=(*case.spent, *spent))


def _is_test(row: Any, *, called: bool) -> bool:
    if not isinstance(row, dict) or "input" not in row or "output" not in row:
        return False
    if called != isinstance(row["input"], list) or (not called and not isinstance(row["output"], str)):
        return False
    if not called and not isinstance(row["input"], str):
        return False
    return all(len(json.dumps(row[name])) <= LONGEST_TEST for name in ("input", "output"))


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
