"""A run as pages see it: its figures, its labels, and what is known of each case."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from random import Random
from statistics import fmean

from caps.core.domains import Signature
from caps.core.errors import CapsError
from caps.core.text import plural
from caps.core.types import Candidate, Case, Entrant
from caps.evidence.profiles import profile_for, profile_named, signature_of, with_views
from caps.evidence.signatures import same_text
from caps.reports.answers import answer_text, domain_of
from caps.reports.numbers import dollars
from caps.runs.judge_quality import JudgeQuality, count_judge_quality
from caps.runs.outcomes import Outcome, Outcomes, outcome_of
from caps.runs.rebuild import RebuiltRun
from caps.runs.result_lines import Line
from caps.runs.run_file import judges_of
from caps.runs.summary import Figures, count_figures
from caps.strategies.dedup import count_votes, dedup

UNSURE = 0.7  # choices less likely than this are listed as unsure
GROUPED_CHARACTERS = 40  # longer values of a field are texts, which group nothing
# Fields that are answers, and the names of columns.
NOT_GROUPING = frozenset(
    ("answer", "solution", "case", "result", "problem", "probability", "votes", "answers", "calls",
     "tokens read", "cost", "note")
)  # fmt: skip
MOST_ANSWERS = 12  # of the other candidates, to be found by a search


@dataclass(frozen=True, slots=True)
class CaseFacts:
    """A case as a list shows it. `majority` is how often a choice by most votes is right; ties are shared."""

    problem: str
    answer: str
    others: tuple[str, ...]
    votes: int
    voters: int
    leads: bool  # no answer has more votes than the chosen one
    majority: float | None
    signatures: tuple[str | None, ...]  # of all candidates; equal for equal answers
    texts: int  # a hash of all candidates: two runs with the same have the same candidates
    fields: Mapping[str, str] = field(default_factory=dict)  # by which cases can be grouped


@dataclass(slots=True)
class Choices:
    """What is known about the choices of a run beyond its totals: votes, and stated probabilities."""

    against: int = 0  # choices that differ from the most common answer
    counted: int = 0  # cases with votes
    majority: float = 0.0  # expected right choices by votes
    majority_of: int = 0
    stated: list[tuple[float, bool | None]] = field(default_factory=list)  # probability, right
    unsure: int = 0

    @property
    def majority_share(self) -> float | None:
        """Share of right choices if the most common answer is always taken."""
        return self.majority / self.majority_of if self.majority_of else None

    def add(self, line: Line, about: CaseFacts | None, *, right: bool | None) -> None:
        """Count a case."""
        if line.get("probability") is not None:
            self.stated.append((line["probability"], right))
            self.unsure += is_unsure(line)
        if about is None or "winner" not in line:
            return
        self.counted += 1
        self.against += not about.leads
        if right is not None and about.majority is not None:
            self.majority += about.majority
            self.majority_of += 1


def is_unsure(line: Line) -> bool:
    """Whether the probability of a choice is low."""
    probability = line.get("probability")
    return bool(line.get("abstain")) or (probability is not None and probability < UNSURE)


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run with its figures, known labels, and what a list says about each case.

    `misjudged` are the cases in which the judge preferred a wrong candidate to a right one.
    """

    run: RebuiltRun
    name: str
    figures: Figures
    labels: dict[str, tuple[bool | None, ...]]
    facts: dict[str, CaseFacts]
    choices: Choices
    quality: JudgeQuality
    misjudged: frozenset[str]

    @property
    def outcomes(self) -> Outcomes:
        """How the labelled choices turned out."""
        return self.figures.outcomes

    @property
    def selections(self) -> Mapping[str, Line]:
        """The result line of each case, in order."""
        return self.run.selections

    @property
    def strategy(self) -> str:
        """The strategy that chose."""
        return self.run.file.config.strategy

    @property
    def judge(self) -> str:
        """The judge, or both where partial views have one of their own."""
        full, at_partial = judges_of(self.run.file.config)
        return str(full) if full == at_partial else f"{at_partial} (E1) and {full} (E2)"

    @property
    def status(self) -> str:
        """Whether the run has finished."""
        return (
            "finished" if self.run.finished else f"not finished: {plural(self.figures.cases, 'case')} so far"
        )

    @property
    def cost(self) -> str:
        """What was spent on the judge."""
        figures = self.figures
        return "unknown" if figures.usd is None and figures.total.calls else dollars(figures.usd or 0.0)

    @property
    def tokens_per_case(self) -> float:
        """Tokens that the judge read, per case."""
        return self.figures.total.asked / self.figures.cases if self.figures.cases else 0.0

    def outcome(self, case: str) -> Outcome | None:
        """How the choice of a case turned out; None if that is unknown."""
        return outcome_of(self.selections[case].get("winner"), self.labels.get(case, ()))

    def right(self, case: str) -> bool | None:
        """Whether the answer chosen for a case is right; None if that is unknown."""
        outcome = self.outcome(case)
        return None if outcome is None else outcome == "right"


def load_report(run: RebuiltRun) -> RunReport:
    """Count the figures of a run."""
    labels, facts = {}, {}
    for read in run.cases():
        line = run.selections.get(read.id)
        if line is not None:
            case = run.with_findings(read)
            labels[case.id] = tuple(candidate.correct for candidate in case.candidates)
            facts[case.id] = case_facts(run, case, line)
    figures = count_figures(run.selections.values(), run.calls, labels, run.resolved.price)
    quality, misjudged = count_judge_quality(run.calls, labels)
    name = run.path.resolve().name
    report = RunReport(run, name, figures, labels, facts, Choices(), quality, misjudged)
    for case_id, line in run.selections.items():
        report.choices.add(line, facts.get(case_id), right=report.right(case_id))
    return report


def case_facts(run: RebuiltRun, case: Case, line: Line) -> CaseFacts:
    """Read a case, with its findings, and its result."""
    candidates = case.candidates
    entrants = _entrants(candidates, _signature(run, case.domain))
    signatures = [entrant.signature for entrant in entrants]
    voted = count_votes(entrants, dedup(entrants, "first", Random(0)))  # by the first of each cluster
    votes = {signatures[player]: count for player, count in voted.items()}
    winner = line.get("winner")
    chosen = candidates[winner] if isinstance(winner, int) and 0 <= winner < len(candidates) else None
    signature = None if chosen is None else signatures[winner or 0]
    most = max(votes.values(), default=0)
    labels = [candidates[player].correct for player, count in voted.items() if count == most]
    short = domain_of(case).short_answers
    others = dict.fromkeys(
        answer_text(candidates[signatures.index(other)], short=True) for other in votes if other != signature
    )
    return CaseFacts(
        problem=case.problem.text,
        answer="" if chosen is None else answer_text(chosen, short=short),
        others=tuple(list(others)[:MOST_ANSWERS]) if short else (),
        votes=0 if chosen is None else votes[signature],
        voters=len(candidates),
        leads=chosen is not None and votes[signature] == most,
        majority=None if not labels or None in labels else fmean(map(bool, labels)),
        signatures=tuple(signatures),
        texts=hash(tuple(candidate.text for candidate in candidates)),
        fields=grouping_fields(case),
    )


def grouping_fields(case: Case) -> dict[str, str]:
    """The domain of a case and its other fields that hold a short value."""
    return {"domain": case.domain} | {
        name: str(value)
        for name, value in case.extra.items()
        if isinstance(value, str | int | float)
        and 0 < len(str(value)) <= GROUPED_CHARACTERS
        and name not in NOT_GROUPING
    }


def _entrants(candidates: Sequence[Candidate], sign: Signature) -> list[Entrant]:
    """The candidates as the strategy `majority` sees them."""
    answers = [sign(candidate) for candidate in candidates]
    return [
        Entrant(place, answer or same_text(candidates[place]), signature_kind="value" if answer else "text")
        for place, answer in enumerate(answers)
    ]


@cache
def _found_signature(profile: str | None, domain: str, views: tuple[tuple[str, str], ...]) -> Signature:
    shown = with_views(profile_for(domain) if profile is None else profile_named(profile), dict(views))
    return signature_of(replace(shown, clusters=True))


def _signature(run: RebuiltRun, domain: str) -> Signature:
    """What makes two answers equal: the findings, for every strategy, so that runs can be compared."""
    config = run.file.config
    views = tuple((name, str(value)) for name, value in config.views.items())
    try:
        return _found_signature(config.profile, domain, views)
    except CapsError:  # a view of this run that is not installed here
        return same_text


def footer(*, live: bool = False) -> str:
    """Return the footer with the version of caps, and what the page asks of the network."""
    try:
        name = f"caps {version('caps-select')}"
    except PackageNotFoundError:
        name = "caps"
    if live:
        return f"Served by {name}. This page asks nothing of any other machine."
    return f"Written by {name}. This page makes no network requests."
