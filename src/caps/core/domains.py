"""What a kind of task brings along: signature, views, prompts, finder and grader, in one `Domain`.

`code`, `math` and `general` are built in (`evidence/domains.py`). Nothing in caps asks what a domain is
called: whatever differs between kinds of tasks is a field of this class.

    SQL = Domain(name="sql", signature=normalised_query, finder=QueryRunner, grader=QueryRunner)
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from caps.core.types import Candidate, Case, Found

#: Kinds of tasks that the prompts have words for; the last says nothing of the kind.
PROMPT_KINDS = ("code", "math", "general")

View: TypeAlias = Callable[[Candidate], str]
Signature: TypeAlias = Callable[[Candidate], str | None]


@dataclass(frozen=True, slots=True)
class Grade:
    """Right, wrong, or undecided (`correct` is None); why in a word, and at more length for whoever asks.

    `reason` is empty for a right candidate; `detail` shows the two answers, or the test that failed. Where
    there are public tests only, `passed_public_tests` says whether they passed; that decides nothing.
    """

    correct: bool | None
    reason: str = ""
    detail: str = ""
    passed_public_tests: bool | None = None


class Grader(Protocol):
    """Whatever tells right from wrong.

    * A candidate is hostile: whatever it contains, a grader returns a grade within its limits and goes on.
    * A grade depends on the case, the candidate and the grader's `version` alone, because it is kept under
      them.
    * A truth that cannot be used (a gold answer that does not parse, tests that cannot run) is the case's
      fault: `InputError`, naming the field.
    """

    @property
    def version(self) -> str:
        """Changes whenever a grade could: part of the key under which grades are kept."""
        ...

    async def grade(self, case: Case, candidate: Candidate) -> Grade:
        """Grade one candidate; several may be under way at once."""
        ...

    async def close(self) -> None:
        """Let go of workers and folders."""
        ...


class Finder(Protocol):
    """Whatever finds facts about the candidates of a case before any judge is asked.

    * A fact depends on the case and the finder's `version` alone, because it is kept under them.
    * Truth is not looked at: no hidden test, no gold answer, no label. A finder is given the fields of a case
      that its domain names in `fields`, and no others.
    """

    @property
    def version(self) -> str:
        """Changes whenever a fact could."""
        ...

    async def find(self, case: Case, until: float | None = None) -> Sequence[Found]:
        """What is found of each candidate, in order; empty where there is nothing to go by.

        It ends at `until`, a time of the loop's clock: with what is known by then, or with `TimeoutError`.
        """
        ...

    async def close(self) -> None:
        """Let go of workers."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a run offers a finder or a grader, which is made by calling a class or function with this.

    `sandbox` says where programs may run (`off`: nowhere), `seconds` how long one may take for a test.
    """

    sandbox: str = "auto"
    seconds: float = 10.0
    texts: Any = None  # the worker processes that read long texts


MakeFinder: TypeAlias = Callable[[Resources], Finder | None]
MakeGrader: TypeAlias = Callable[[Resources], Grader | Awaitable[Grader]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """A kind of task. Functions may be given as such, or by name (`code-summary`, `package.module:view`).

    A function given by name can also run in a worker process, where a long text holds up nobody.
    """

    name: str
    """What a case calls it in its field `domain`: a word of letters, digits, - and _."""
    about: str = ""
    """One line for `caps list domains`."""
    signature: str | Signature = "general-text"
    """E0: equal for candidates that give the same answer; None where there is no answer."""
    partial: str | View = "general-summary"
    """E1: the part of a candidate that a judge sees first."""
    full: str | View = "full"
    """E2: all that a judge may see."""
    prompts: str = PROMPT_KINDS[-1]
    """Which prompts ask judge and generator, and which temperature: those of code, math or general."""
    finder: str | MakeFinder | None = None
    """Hard evidence, found before any judge is asked."""
    grader: str | MakeGrader | None = None
    """Labels candidates, for `caps grade` and `caps sample`."""
    fields: tuple[str, ...] = ()
    """Fields of a case beside problem and candidates that the finder may read."""
    truth: tuple[str, ...] | None = None
    """Fields of a case that a grade depends on; None: all."""
    python_programs: bool = False
    """Whether candidates are Python programs: a case may state an interface and tests for them."""
    short_answers: bool = False
    """Whether a candidate ends in a short answer, which is printed once more by itself."""
    recognises: Callable[[Mapping[str, object], Sequence[Candidate]], bool] | None = None
    """Whether a case that states no domain is of this one. Only built-in domains are guessed, in their order:
    installing a package changes no selection."""

    @property
    def has_own_prompts(self) -> bool:
        """Whether the prompts depend on it."""
        return self.prompts != PROMPT_KINDS[-1]
