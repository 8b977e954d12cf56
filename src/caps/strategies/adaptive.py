"""Adaptive sampling: one more sample, one more verdict, or stop, whichever is worth its price.

A policy (`core.policy`). What is believed is `posterior`'s, with votes weighed by the model of `agreement`,
which holds for any number of samples. What another verdict is worth is `posterior`'s too; what another
sample is worth is the expected rise of the likeliest answer's chance, alone or together with a verdict about
it. Both are divided by their own price. See docs/explanation/adaptive-sampling.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from math import log
from random import Random
from typing import NamedTuple

from caps.core.policy import Draw, Event, JudgePrice, PolicyPlay, Pool
from caps.core.types import Answer, Ask, Entrant, Level, Round
from caps.strategies.agreement import Rate, Standing, chance_of_new, gain, log_weights
from caps.strategies.belief import exchange, weigh
from caps.strategies.posterior import GAMES_OF_V1, ContestState, Posterior
from caps.strategies.verdicts import scales

AHEAD = (1, 2, 3, 5, 8)  # how many samples may be needed before they change anything
STAGE = "ask"


@dataclass(frozen=True, slots=True, kw_only=True)
class VotingPosterior(Posterior):
    """`posterior` with the votes of samples weighed by the model of `agreement`."""

    written_by: tuple[int, ...] = ()
    rates: tuple[Rate, ...] = ()
    independent: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        """Do not check again: the settings are those of a `Posterior`."""

    def prior(self, groups: Sequence[Sequence[Entrant]]) -> list[float]:
        """Log-weight of each answer before the judge is asked."""
        if self.several(groups):
            return Posterior.prior(self, groups)
        failing = {"parses": self.parses, "tests_passed": self.tests}
        scored = {"score": self.score, "logprob": self.logprob}
        known = weigh(groups, votes=0.0, failing=failing, scored=scored)
        votes = log_weights(self.counts(groups), self.rates)
        none = self.votes * log(self.nobody)  # the weight that `posterior` gives to "none is right"
        return [none + own + vote for own, vote in zip(known, votes, strict=True)]

    def counts(self, groups: Sequence[Sequence[Entrant]]) -> list[list[int]]:
        """How often each source gave each answer."""
        return [votes([self.written_by[one.id] for one in group], self.independent) for group in groups]


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
    value: float = 0.012  # gain in probability that a sample of the first source has to promise

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
            facts = state.facts(ranking[0])
            option, asks = self._sampling(pool, state), list[Ask]()
            enough = facts["probability"] >= self.target and len(pool.entrants) >= self.least
            if not enough:
                asks = self._asks(pool, state, ranking, option.value)
            if asks:
                event = yield Round(STAGE, tuple(asks), tuple(ranking), facts=facts)
                rounds.append((asks, event.answers))
            elif not enough and (option.value >= 1 or len(pool.entrants) < self.least) and option.more:
                event = yield Draw(self._counts(pool, option), tuple(ranking), facts)
            else:
                return state.selection(ranking)

    def _state(
        self,
        pool: Pool,
        luck: Sequence[float],
        rounds: Sequence[tuple[Sequence[Ask], Sequence[Answer]]],
    ) -> ContestState:
        """What is believed: the candidates so far and all answers about them."""
        rates = tuple(Rate.of(one.quality) for one in pool.sources)
        independent = tuple(one.independent for one in pool.sources)
        known = {one.name: getattr(self.posterior, one.name) for one in fields(Posterior)}
        known |= {"confidence_target": self.target, **self._prices(pool)}
        if pool.short_answers and self.posterior.answers == "auto":
            known["answers"] = "one"
        strategy = VotingPosterior(**known, written_by=pool.written_by, rates=rates, independent=independent)
        state = ContestState(strategy, pool.entrants, luck)
        for asks, answers in rounds:
            state.update(asks, answers)
        return state

    def _prices(self, pool: Pool) -> dict[str, float]:
        """`posterior`'s settings that state the price of a question in samples of the first source.

        It counts prices in tokens read, so a reply counts as the tokens that could be read for its price.
        """
        judge, sample = pool.judge, pool.sources[0].price
        if judge is None or not sample:
            return {}
        prompt = judge.prompt + (round(judge.reply / judge.token) if judge.token else 0)
        full = sum(one.sizes[Level.FULL] for one in pool.entrants) / len(pool.entrants)
        everything = GAMES_OF_V1 * len(pool.entrants) * (prompt + 2 * full)
        return {"prompt_tokens": prompt, "worth": self.value / sample * judge.token * everything}

    def _asks(self, pool: Pool, state: ContestState, ranking: Sequence[int], rival: float) -> list[Ask]:
        """The round to ask now: none if a sample promises more for its price, or nothing can be asked."""
        if pool.judge is None:
            return []
        best = max((one.option for one in state.questions(ranking)), default=0.0)
        return state.options() if best >= max(1.0, rival) else []

    def _sampling(self, pool: Pool, state: ContestState) -> Option:
        """The samples that promise most for their price; a count of 0 if there is no room for any."""
        room = self._room(pool) + sum(one.running for one in pool.sources)
        if room <= 0:
            return Option(0.0, 0, 0)
        found, unit = list[Option](), self.value / (pool.sources[0].price or 1.0)
        standings, counts = _standings(pool, state)
        for number, source in enumerate(pool.sources):
            own = [row[number] for row in counts]
            known = [
                Standing(chance, sum(row), mine)
                for chance, row, mine in zip(standings, counts, own, strict=True)
            ]
            rate, price = Rate.of(source.quality), unit * (source.price or 1.0)
            if source.independent:
                for count in AHEAD:
                    if count <= room:
                        value = gain(known, rate, sum(own), count) / (count * price)
                        found.append(Option(value, count, number))
            if pool.judge is not None:
                together = price + unit * _question_price(pool, pool.judge)
                found.append(Option(self._with_verdict(known, rate, sum(own)) / together, 1, number))
        best = max(found)
        if self.eager and best.value >= 1:
            return max((one for one in found if one.value >= 1), key=lambda one: one.more)
        return best

    def _with_verdict(self, standings: Sequence[Standing], rate: Rate, drawn: int) -> float:
        """What a sample and one verdict that compares it with the likeliest may win."""
        scale = scales(self.posterior)[Level.FULL]
        sharpness = (2 * scale.gap) ** 2 / (1 + self.posterior.slot_spread**2)
        gained = chance_of_new(standings, rate, drawn)
        leader = max(standings)
        other = (rate.wrong + drawn - leader.own) / (rate.right + rate.wrong + drawn)
        return exchange(leader.chance * other, gained, sharpness)

    def _counts(self, pool: Pool, option: Option) -> tuple[int, ...]:
        """How many samples to start of each source: those worthwhile that do not run yet."""
        wanted = min(max(option.more, self.least - len(pool.entrants)), self.at_once) - _running(pool)
        more = max(0, min(wanted, self._room(pool)))
        return tuple(more * (number == option.source) for number in range(len(pool.sources)))

    def _first_counts(self, pool: Pool) -> tuple[int, ...]:
        """The first samples: of the source that promises most right answers for its price."""
        wanted = max(self.first, min(self.least, self.at_once)) - _running(pool)
        more = max(0, min(wanted, self._room(pool)))
        best = max(range(len(pool.sources)), key=lambda k: (_promise(pool, k), -k))
        return tuple(more * (k == best) for k in range(len(pool.sources)))

    def _room(self, pool: Pool) -> int:
        """How many samples may still be started; those that failed count."""
        return 0 if pool.closed else max(0, self.most - sum(one.started for one in pool.sources))


def _standings(pool: Pool, state: ContestState) -> tuple[list[float], list[list[int]]]:
    """The chance of each answer, likeliest first, and its votes by source.

    Where several may be right, chances may add up to more than one; the unlikeliest are cut then.
    """
    chances, members = state.chances(), dict[int, list[int]]()
    for one, answer in state.answer_of.items():
        members.setdefault(answer, []).append(one)
    best = {answer: max(chances[one] for one in ids) for answer, ids in members.items()}
    order, left, found = sorted(best, key=lambda answer: -best[answer]), 1.0, list[float]()
    for answer in order:
        found.append(min(left, best[answer]))
        left = max(0.0, left - found[-1])
    independent = [one.independent for one in pool.sources]
    return found, [votes([pool.written_by[one] for one in members[k]], independent) for k in order]


def _promise(pool: Pool, number: int) -> float:
    source = pool.sources[number]
    return source.quality / source.price if source.price else source.quality


def _running(pool: Pool) -> int:
    """Samples under way, without those that are late."""
    return sum(one.running - one.late for one in pool.sources)


def _question_price(pool: Pool, judge: JudgePrice) -> float:
    """What a question about two candidates of usual length costs."""
    full = sum(one.sizes[Level.FULL] for one in pool.entrants) / len(pool.entrants)
    return judge.reply + judge.token * (judge.prompt + 2 * full)
