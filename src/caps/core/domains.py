"""Domains: the signature, views, prompts, finder and grader of a kind of task.

`code`, `math` and `general` are built in (`evidence/domains.py`). No code depends on the name of a
domain: everything that differs between kinds of tasks is a field of this class.

    SQL = Domain(name="sql", signature=normalised_query, finder=QueryRunner, grader=QueryRunner)
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from caps.core.types import Candidate, Case, Found

#: Kinds of tasks with their own prompts; the last is for all others.
PROMPT_KINDS = ("code", "math", "general")
#: The prompts of the last kind for a case that states what makes an answer better.
CRITERIA_PROMPTS = "criteria"
#: Templates that a domain may bring: a pair on partial and on full views, with ratings, on what separates the
#: two; one candidate; many.
TEMPLATES = ("pair-e1", "pair-e2", "pair-ratings", "pair-difference", "solo", "group")

View: TypeAlias = Callable[[Candidate], str]
Signature: TypeAlias = Callable[[Candidate], str | None]
#: What a judge reads of two candidates, given by place, where something known separates them; else None.
Differences: TypeAlias = Callable[[int, int], tuple[str, str] | None]
#: Made once for all candidates of a case, so that each is read once.
PairView: TypeAlias = Callable[[Sequence[Candidate]], Differences]


@dataclass(frozen=True, slots=True)
class Grade:
    """Right, wrong, or undecided (`correct` is None), with a short reason and a longer detail.

    `reason` is empty for a right candidate; `detail` shows the two answers, or the test that failed. If there
    are only public tests, `passed_public_tests` says whether they passed, and `correct` stays None. If a
    grader compares in several ways, `decided_by` names the one that decided.
    """

    correct: bool | None
    reason: str = ""
    detail: str = ""
    passed_public_tests: bool | None = None
    decided_by: str = ""


class Grader(Protocol):
    """Decides whether candidates are right.

    * Candidates are hostile: whatever they contain, a grader returns a grade within its limits.
    * A grade depends only on the case, the candidate and the grader's `version`, which are its cache key.
    * An unusable reference (an answer that does not parse, tests that cannot run) is an `InputError` that
      names the field of the case.
    """

    @property
    def version(self) -> str:
        """Part of the cache key of grades; changes whenever a grade could."""
        ...

    async def grade(self, case: Case, candidate: Candidate) -> Grade:
        """Grade one candidate; may be called concurrently."""
        ...

    async def close(self) -> None:
        """Free workers and folders."""
        ...


Opening: TypeAlias = Callable[[], Awaitable[Grader]]
"""Opens a grader when it is first needed."""


class Finder(Protocol):
    """Finds facts about the candidates of a case before any judge is asked.

    * A fact depends only on the case and the finder's `version`, which are its cache key.
    * A finder sees no hidden test, no reference answer and no label: of a case's extra fields it gets only
      those that its domain names in `fields`.
    """

    @property
    def version(self) -> str:
        """Part of the cache key of facts; changes whenever a fact could."""
        ...

    async def find(self, case: Case, until: float | None = None) -> Sequence[Found]:
        """Findings about each candidate, in order; empty if there is nothing to compare.

        It ends at `until`, a time of the loop's clock, with the findings so far or with `TimeoutError`.
        """
        ...

    async def close(self) -> None:
        """Free workers."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Resources of a run for a finder or grader, passed to the function or class that creates it.

    `sandbox` says where programs may run (`off`: nowhere), `seconds` limits the time for a test. A finder may
    try `further_inputs` beyond the examples of a case, in `further_seconds`. `texts.run(partial(function,
    ...), size=characters, until=time)` calls a function of the plug-in's package on long texts in a worker
    process.
    """

    sandbox: str = "auto"
    seconds: float = 10.0
    further_inputs: int = 64
    further_seconds: float = 20.0
    texts: Any = None


MakeFinder: TypeAlias = Callable[[Resources], Finder | None]
MakeGrader: TypeAlias = Callable[[Resources], Grader | Awaitable[Grader]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """A kind of task. Functions are given as objects or by name (`code-summary`, `package.module:view`).

    A function given by name can also run in a worker process, where a long text does not block other cases.
    """

    name: str
    """What a case calls it in its field `domain`: a word of letters, digits, - and _."""
    about: str = ""
    """One line for `caps list domains`."""
    signature: str | Signature = "general-answer"
    """E0: equal for candidates that give the same answer; None where there is no answer."""
    partial: str | View = "general-summary"
    """E1: the part of a candidate that a judge sees first."""
    full: str | View = "full"
    """E2: all that a judge may see."""
    pair: str | PairView | None = None
    """E1 of two candidates that a finding separates, for strategies that ask about differences."""
    prompts: str = PROMPT_KINDS[-1]
    """Which prompts ask judge and generator, and which temperature: those of code, math or general."""
    templates: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Its own judge prompts, by the names of `TEMPLATES`; `prompts` serves the others. Each has the slots
    `{problem}`, `{code}`, which the judge repeats in its verdict, and those of the candidates it shows; one
    with `{criteria}` is asked by the criteria of the case."""
    finder: str | MakeFinder | None = None
    """Hard evidence, found before any judge is asked."""
    grader: str | MakeGrader | None = None
    """Labels candidates, for `caps grade` and `caps sample`."""
    fields: tuple[str, ...] = ()
    """Fields of a case beside problem and candidates that the finder may read."""
    complete: Callable[[Case], Case] | None = None
    """Adds computed fields to a case before anything else reads it, such as a digest of files that it names,
    so that findings are stored for these files only. An `InputError` refuses the case."""
    local_fields: tuple[str, ...] = ()
    """Fields of a case that name files or commands of this machine; the server refuses cases with one."""
    truth: tuple[str, ...] | None = None
    """Fields of a case that a grade depends on; None: all."""
    python_programs: bool = False
    """Whether candidates are Python programs: a case may state an interface and tests for them."""
    short_answers: bool = False
    """Whether a candidate ends in a short answer, of which at most one is right; it is printed by itself."""
    text_form: str = ""
    """What the text of a candidate is where it is not Markdown, for pages: `code`, `patch` or `messages`."""
    recognises: Callable[[Mapping[str, object], Sequence[Candidate]], str] | None = None
    """Why a case that states no domain is of this one; empty if it is not. Only built-in domains are guessed,
    in their order: installing a package changes no selection."""

    @property
    def has_own_prompts(self) -> bool:
        """Whether it has its own prompts."""
        return self.prompts != PROMPT_KINDS[-1]
