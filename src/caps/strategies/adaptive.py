"""Adaptive sampling: one more sample, one more verdict, or stop, whichever is worth its price.

A policy (`core.policy`). What is believed is `posterior`'s, with votes weighed by the model of `agreement`,
which holds for any number of samples. What another verdict is worth is `posterior`'s too; what another
sample is worth is how much likelier the right answer is chosen in the end, by votes and verdicts. Both are
divided by their own price. See docs/explanation/adaptive-sampling.md.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from random import Random
from statistics import NormalDist
from typing import NamedTuple, TypeAlias

from caps.core.policy import Draw, Event, PolicyPlay, Pool
from caps.core.types import Answer, Ask, Level, Round, shown_size
from caps.strategies.agreement import Rate, Standing, exchange, gain, log_weights
from caps.strategies.belief import SUREST, Groups, accuracy, only
from caps.strategies.posterior import EFFORTS, ContestState, Posterior

AHEAD = (1, 2, 3, 5, 8, 12)  # how many samples may be needed before they change anything
STAGE = "ask"
LEAST_LEFT = 0.05  # of the variance of log-odds: another verdict may always show a little
CLEARLY_WORSE = 0.1  # in quality: such a generator is not asked if there is a better one
REPEATED = 0.25  # correlation of the errors of two verdicts about the same answer
VERDICTS = 3  # about one answer, that are expected to be asked in the end
IN_A_ROW = (1, 2, 3, 5)  # how many verdicts a question may need before they change anything
NORMAL = NormalDist()

Rounds: TypeAlias = Sequence[tuple[Sequence[Ask], Sequence[Answer]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class VotingPosterior(Posterior):
    """`posterior` with the votes of samples weighed by the model of `agreement`."""

    written_by: tuple[int, ...] = ()
    rates: tuple[Rate, ...] = ()
    independent: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        """Do not check again: the settings are those of a `Posterior`."""

    def vote_odds(self, groups: Groups) -> list[float]:
        """Log-odds by votes alone."""
        if not self.exclusive(groups):
            return Posterior.vote_odds(self, groups)
        none = self.nobody_right(groups)
        return [none + vote for vote in log_weights(self.counts(groups), self.rates)]

    def counts(self, groups: Groups) -> list[list[int]]:
        """How often each source gave each answer; copies of a text without an answer count once."""
        return [
            votes([self.written_by[entrant.id] for entrant in counted], self.independent)
            for counted in (group[:1] if group[0].answer == "text" else group for group in groups)
        ]


def votes(written_by: Sequence[int], independent: Sequence[bool]) -> list[int]:
    """The votes for an answer by source: what was written from other samples counts once, and only alone."""
    counts = [written_by.count(source) * alone for source, alone in enumerate(independent)]
    if not any(counts):
        counts[written_by[0]] = 1
    return counts


class Option(NamedTuple):
    """Some samples of one source; `value` is their expected gain divided by their price."""

    value: float
    more: int
    source: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive:
    """Sample, ask or stop: stop at `target`, at `most` samples, or when nothing is worth its price."""

    posterior: Posterior = field(default_factory=Posterior)
    target: float = 0.95  # sure enough to stop
    most: int = 32  # samples at most
    least: int = 1  # samples at least
    first: int = 2  # samples to start with
    at_once: int = 4  # samples that run at the same time at most
    eager: bool = False  # start all samples that are worth their price, not only the best number
    value: float = 0.03  # gain in probability that a sample of the first source has to promise

    def play(self, event: Event, rng: Random) -> PolicyPlay:
        """Yield actions until the choice is sure enough or nothing is worth its price."""
        luck, rounds = list[float](), list[tuple[Sequence[Ask], Sequence[Answer]]]()
        while True:
            pool = event.pool
            luck += [rng.random() for _ in pool.entrants[len(luck) :]]
            if not pool.entrants:
                counts = self._first_counts(pool)
                if not any(counts) and not any(one.running for one in pool.sources):
                    return None
                event = yield Draw(counts)
                continue
            state = self._state(pool, luck, rounds)
            ranking = state.ranking()
            facts = state.facts()
            option, asks = self._sampling(pool, state, rounds), list[Ask]()
            sure = state.chances[state.answer_of[ranking[0]]]
            enough = sure >= self.target and len(pool.entrants) >= self.least
            if not enough:
                asks = self._asks(pool, state, option.value)
            if asks:
                event = yield Round(STAGE, tuple(asks), tuple(ranking), facts=facts)
                rounds.append((asks, event.answers))
            elif not enough and (option.value >= 1 or len(pool.entrants) < self.least) and option.more:
                event = yield Draw(self._counts(pool, option), tuple(ranking), facts)
            else:
                return state.selection()

    def _state(self, pool: Pool, luck: Sequence[float], rounds: Rounds) -> ContestState:
        """What is believed: the candidates so far and all answers about them."""
        rates = tuple(Rate.of(source.quality) for source in pool.sources)
        independent = tuple(source.independent for source in pool.sources)
        settings = {spec.name: getattr(self.posterior, spec.name) for spec in fields(Posterior)}
        strategy = VotingPosterior(
            **settings, written_by=pool.written_by, rates=rates, independent=independent
        )
        effort = EFFORTS[self.posterior.effort]._replace(target=self.target)
        state = ContestState(strategy, pool.entrants, luck, effort)
        for asks, answers in rounds:
            state.update(asks, answers)
        return state

    def _unit(self, pool: Pool) -> float:
        """The gain that something of price 1 has to promise."""
        return self.value / (pool.sources[0].price or 1.0)

    def _asks(self, pool: Pool, state: ContestState, rival: float) -> list[Ask]:
        """The round to ask now: none if a sample promises more for its price, or nothing can be asked."""
        if pool.judge is None:
            return []
        asks = state.questions()
        return asks if asks and self._asking(pool, state, asks[0]) >= max(1.0, rival) else []

    def _asking(self, pool: Pool, state: ContestState, ask: Ask) -> float:
        """What a question promises for its price: to exchange one answer for the other, now or soon."""
        judge, exclusive = pool.judge, self.posterior.exclusive(state.groups)
        if judge is None:
            return 0.0
        one, other = (state.answer_of[entrant] for entrant in ask.entrants)
        kept = only(state.chances, one, other, exclusive=exclusive)
        gained = only(state.chances, other, one, exclusive=exclusive)
        by_id = {entrant.id: entrant for entrant in pool.entrants}
        tokens = judge.prompt + shown_size(by_id, ask) + (judge.reply / judge.token if judge.token else 0.0)
        price = self._unit(pool) * judge.token * tokens
        best = max(
            exchange(max(kept, gained), min(kept, gained), self._sharpness(ask.level, count)) / count
            for count in IN_A_ROW
        )
        return best / price if price else float("inf")

    def _sharpness(self, level: Level, count: int) -> float:
        """The variance of what some verdicts about the same answers add to their log-odds."""
        share = min(SUREST, max(0.5, accuracy(self.posterior, level)))
        return (2 * NORMAL.inv_cdf(share)) ** 2 * count / (1 + max(0, count - 1) * REPEATED)

    def _sampling(self, pool: Pool, state: ContestState, rounds: Rounds) -> Option:
        """The samples that promise most for their price; a count of 0 if there is no room for any."""
        room = self._room(pool) + sum(one.running for one in pool.sources)
        if room <= 0:
            return Option(0.0, 0, 0)
        options, unit = list[Option](), self._unit(pool)
        chances, counts, answers = _standings(pool, state)
        asked = Counter(state.answer_of[one] for asks, _ in rounds for ask in asks for one in ask.entrants)
        left = [self._verdicts_left(pool, asked[answer]) for answer in answers]
        for number in _worth_asking(pool):
            source = pool.sources[number]
            standings = [
                Standing(chance, sum(row), row[number], verdicts)
                for chance, row, verdicts in zip(chances, counts, left, strict=True)
            ]
            drawn = sum(row[number] for row in counts)
            rate, price = Rate.of(source.quality), unit * (source.price or 1.0)
            for count in AHEAD if source.independent else AHEAD[:1]:
                if count <= room:
                    won = gain(
                        standings, rate, drawn, count,
                        verdicts=self._verdicts_left(pool, 0), votes=source.independent,
                    )  # fmt: skip
                    options.append(Option(won / (count * price), count, number))
        best = max(options)
        if self.eager and best.value >= 1:
            return max((option for option in options if option.value >= 1), key=lambda option: option.more)
        return best

    def _verdicts_left(self, pool: Pool, asked: int) -> float:
        """What verdicts may still show about an answer: the variance of its log-odds by those to come."""
        if pool.judge is None:
            return 0.0
        left = self._sharpness(Level.FULL, VERDICTS) - self._sharpness(Level.FULL, asked)
        return max(LEAST_LEFT, left) if self._sharpness(Level.FULL, 1) else 0.0

    def _counts(self, pool: Pool, option: Option) -> tuple[int, ...]:
        """How many samples to start of each source: those worthwhile that do not run yet."""
        wanted = min(max(option.more, self.least - len(pool.entrants)), self.at_once) - _running(pool)
        more = max(0, min(wanted, self._room(pool)))
        return tuple(more * (number == option.source) for number in range(len(pool.sources)))

    def _first_counts(self, pool: Pool) -> tuple[int, ...]:
        """The first samples: of the source that promises most right answers for its price."""
        wanted = max(self.first, min(self.least, self.at_once)) - _running(pool)
        more = max(0, min(wanted, self._room(pool)))
        best = max(_worth_asking(pool), key=lambda k: (_promise(pool, k), -k))
        return tuple(more * (k == best) for k in range(len(pool.sources)))

    def _room(self, pool: Pool) -> int:
        """How many samples may still be started; those that failed count."""
        return 0 if pool.closed else max(0, self.most - sum(one.started for one in pool.sources))


def _standings(pool: Pool, state: ContestState) -> tuple[list[float], list[list[int]], list[int]]:
    """The chance of each answer, likeliest first, its votes by source, and its number.

    Where several may be right, chances may add up to more than one; the unlikeliest are cut then.
    """
    members = dict[int, list[int]]()
    for entrant, answer in state.answer_of.items():
        members.setdefault(answer, []).append(entrant)
    best = {answer: state.chances[answer] for answer in members}
    order, left, chances = sorted(best, key=lambda answer: -best[answer]), 1.0, list[float]()
    for answer in order:
        chances.append(min(left, best[answer]))
        left = max(0.0, left - chances[-1])
    independent = [one.independent for one in pool.sources]
    counts = [votes([pool.written_by[one] for one in members[k]], independent) for k in order]
    return chances, counts, order


def _worth_asking(pool: Pool) -> list[int]:
    """The sources that are not clearly worse than the best.

    What a worse model gets wrong it gets wrong again and again: its votes mislead on hard problems, however
    cheap they are.
    """
    best = max(one.quality for one in pool.sources)
    return [number for number, one in enumerate(pool.sources) if one.quality >= best - CLEARLY_WORSE]


def _promise(pool: Pool, number: int) -> float:
    source = pool.sources[number]
    return source.quality / source.price if source.price else source.quality


def _running(pool: Pool) -> int:
    """Samples under way, without those that are late."""
    return sum(one.running - one.late for one in pool.sources)
