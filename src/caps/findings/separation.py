"""What the results of programs say: which inputs are valid, who behaves alike, what separates programs. Pure.

Only *credible* programs decide about inputs: those that pass the most examples. A program that gives the same
output whatever its input has no say in what most programs do, so that a popular constant wins nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import combinations
from typing import TypeAlias

from caps.core.types import Survived
from caps.sandbox.programs import OutcomeStatus

MIN_FURTHER = 3  # valid further inputs on which a program must run before it can join a cluster
MIN_VARIED = 5  # further inputs after which a program that never varies its output counts as constant
MAX_TIMEOUTS = 2  # inputs on which a program may hang before it is not run on more
KEPT = 12  # separating inputs that are recorded

Result: TypeAlias = tuple[str, str]
"""Status and digest: equal results are equal."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What a program did with one input, reduced to what is compared and shown."""

    status: OutcomeStatus
    digest: str = ""
    passed: bool = False
    unreadable: bool = False
    shown: str = ""

    @property
    def result(self) -> Result:
        """What is compared."""
        return self.status, self.digest


@dataclass(slots=True)
class ProgramRuns:
    """A program, how many candidates gave it, and its results: on the examples, and on further inputs.

    A further input on which it came near a limit has no result. `by_clock`: it was ended by the clock, and
    not run on more, so nothing is concluded from it.
    """

    source: str
    language: str
    votes: int
    examples: list[Observed] = field(default_factory=list)
    further: dict[int, Observed] = field(default_factory=dict)
    by_clock: bool = False

    @property
    def parses(self) -> bool | None:
        """Whether it could be started at all; None if nobody tried."""
        runs = (*self.examples, *self.further.values())
        return any(run.status != "unparsed" for run in runs) if runs else None

    @property
    def passed(self) -> int | None:
        """The number of examples that it passes; None if there are none or a result cannot be read."""
        if not self.examples or any(run.unreadable for run in self.examples):
            return None
        return sum(run.passed for run in self.examples)

    @property
    def hangs(self) -> bool:
        """Whether it has hung so often that it is taken to hang on every input."""
        runs = (*self.examples, *self.further.values())
        return sum(run.status == "timeout" for run in runs) >= MAX_TIMEOUTS

    @property
    def is_readable(self) -> bool:
        """Whether all its results could be read, and none is open."""
        runs = (*self.examples, *self.further.values())
        return not self.by_clock and not any(run.unreadable for run in runs)

    @property
    def mostly_works(self) -> bool:
        """Whether it did not fail on more than half of the further inputs."""
        return 2 * sum(run.status == "ok" for run in self.further.values()) > len(self.further)

    @property
    def is_constant(self) -> bool:
        """Whether it printed or returned the same on all of many further inputs."""
        outputs = [run.digest for run in self.further.values() if run.status == "ok"]
        return len(outputs) >= MIN_VARIED and len(set(outputs)) == 1


def credible(programs: Sequence[ProgramRuns]) -> list[ProgramRuns]:
    """The programs that pass the most examples; if none passes any, those that mostly work, or all."""
    running = [program for program in programs if program.parses is not False and program.is_readable]
    best = max((program.passed or 0 for program in running), default=0)
    if best:
        return [program for program in running if program.passed == best]
    return [program for program in running if program.mostly_works] or running


@dataclass(slots=True)
class Separation:
    """The comparison of the programs of a case on further inputs, given by their numbers."""

    programs: Sequence[ProgramRuns]
    valid: list[int] = field(init=False)
    separating: list[int] = field(init=False)
    majority: dict[int, Result] = field(init=False)
    _voters: list[ProgramRuns] = field(init=False)

    def __post_init__(self) -> None:
        trusted = [program for program in credible(self.programs) if len(program.further) >= MIN_FURTHER]
        varied = [program for program in trusted if not program.is_constant]
        self._voters = varied or trusted
        shared = [n for n in (self._voters[0].further if self._voters else ()) if self._is_shared(n)]
        self.valid = [n for n in shared if self._is_valid(n)]
        self.separating = splitting(trusted, self.valid)
        self.majority = {n: self._most(n) for n in self.separating}

    def _is_shared(self, n: int) -> bool:
        return all(n in voter.further for voter in self._voters)

    def _is_valid(self, n: int) -> bool:
        """Whether at least half of the programs, counted by candidates, do not fail on an input."""
        worked = sum(voter.votes for voter in self._voters if voter.further[n].status == "ok")
        return 2 * worked >= sum(voter.votes for voter in self._voters)

    def _most(self, n: int) -> Result:
        """The result of most programs; of as many, the first."""
        counted = Counter[Result]()
        for voter in self._voters:
            if voter.further[n].status == "ok":
                counted[voter.further[n].result] += voter.votes
        return counted.most_common(1)[0][0] if counted else ("", "")

    def cluster(self, program: ProgramRuns) -> str | None:
        """A digest of all results on valid inputs; None if too few worked, or one is missing or unreadable.

        A program that fails an example runs on few inputs, which is not enough to call it equal to another.
        """
        if not program.is_readable or any(n not in program.further for n in self.valid):
            return None
        runs = [(n, program.further[n]) for n in self.valid]
        if sum(run.status == "ok" for _, run in runs) < MIN_FURTHER:
            return None
        examples = [f"{run.status} {run.digest}" for run in program.examples]
        further = [f"{n} {run.status} {run.digest}" for n, run in runs]
        return sha256("\n".join([*examples, *further]).encode()).hexdigest()[:16]

    def survived(self, program: ProgramRuns) -> Survived | None:
        """What a program did with the separating inputs, in numbers; None if it did not run on all."""
        if not self.separating or any(n not in program.further for n in self.separating):
            return None
        runs = [(n, program.further[n]) for n in self.separating]
        return Survived(
            inputs=len(runs),
            agreed=sum(run.result == self.majority[n] for n, run in runs),
            crashes=sum(run.status not in ("ok", "timeout") for _, run in runs),
            timeouts=sum(run.status == "timeout" for _, run in runs),
            varied=not program.is_constant,
        )

    def kept(self, lengths: Mapping[int, int]) -> list[int]:
        """Few inputs that separate as many pairs of clusters as possible, the shortest first.

        `lengths` has the inputs that may be recorded. Inputs that separate most of what others leave together
        are taken first, of these the shortest.
        """
        of_cluster = {
            self.cluster(program) or id(program): program
            for program in self.programs
            if program.parses is not False and program.is_readable
        }
        pairs = list(combinations(of_cluster.values(), 2))[:2_000]
        split = {
            n: {k for k, pair in enumerate(pairs) if self._differ(*pair, n)}
            for n in self.valid
            if n in lengths
        }
        chosen = list[int]()
        while len(chosen) < KEPT:
            best = max(split, key=lambda n: (len(split[n]), -lengths[n], -n), default=None)
            if best is None or not split[best]:
                break
            chosen.append(best)
            done = split.pop(best)
            split = {n: left - done for n, left in split.items()}
        return sorted(chosen, key=lambda n: (lengths[n], n))

    @staticmethod
    def _differ(a: ProgramRuns, b: ProgramRuns, n: int) -> bool:
        return n in a.further and n in b.further and a.further[n].result != b.further[n].result


def splitting(programs: Sequence[ProgramRuns], inputs: Iterable[int]) -> list[int]:
    """Inputs on which some program works, and programs differ."""
    chosen = list[int]()
    for n in inputs:
        runs = [program.further[n] for program in programs if n in program.further]
        if any(run.status == "ok" for run in runs) and len({run.result for run in runs}) > 1:
            chosen.append(n)
    return chosen
