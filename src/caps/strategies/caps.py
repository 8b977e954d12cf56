"""CAPS, Algorithm 1: deduplicate, halve on partial views, halve at full evidence, round-robin.

Where the paper leaves a choice open or contradicts itself, the choice is a field (docs/design/0002).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar

from caps.core.play import Capabilities, Game, Play
from caps.core.settings import check_settings, setting
from caps.core.standings import EPSILON, Standings, win_rates
from caps.core.types import Entrant, Level, Selection, partial_views_pay
from caps.strategies.dedup import REPRESENTATIVES, SHORTLISTS, Pool, dedup, enter, keep_all
from caps.strategies.pairings import ORDERS, PairRounds, prior, round_robin, slaughter


@dataclass(slots=True)
class _Cascade:
    """What one contest carries from stage to stage."""

    standings: Standings
    rounds: PairRounds
    pool: list[int]
    fallen: list[int]
    clusters: Pool
    left_out: list[int]
    lost_by: dict[int, float] = field(default_factory=dict)  # Stage A only, where all begin at S = 0

    def ranking(self) -> list[int]:
        """The order that stands now: the pool as seeded, the eliminated (latest first), the left out."""
        return [*self.clusters.expand([*self.pool, *self.fallen]), *self.left_out]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """The cascade of Algorithm 1; as it stands CAPS-Core, with `rescue` CAPS-R."""

    capabilities: ClassVar = Capabilities(counts_votes=False, can_skip_failing=True)

    finalists: int = setting(4, "f: how many reach the round-robin", least=1)
    weight_floor: float = setting(0.05, "tau_w: least weight of a game, and that of a tie", least=0, most=1)
    weighting: str = setting("confidence", "what a game weighs", choices=("confidence", "none"))
    rescue: str = setting("none", "who may come back", choices=("none", "paper", "signed", "screened"))
    rescue_margin: float = setting(0.15, "delta: how narrow a loss may be rescued", least=0)
    rescue_count: int = setting(1, "how many may come back", least=1)
    advance_by: str = setting("score", "who wins a pair", choices=("score", "verdict"))
    small_pool: str = setting("literal", "pools of at most f", choices=("literal", "finals"))
    reduction: str = setting("halve", "may a round end below f?", choices=("halve", "exact"))
    dedup: str = setting("one", "Stage 0: one per cluster, or off", choices=("one", "off"))
    shortlist: str = setting(
        "all", "who may play: all, or who passes all public examples", choices=SHORTLISTS
    )
    representative: str = setting("longest", "which candidate represents a cluster", choices=REPRESENTATIVES)
    seed_by: str = setting("cluster", "seeds of Stage A", choices=("cluster", "prior", "random"))
    reseed_by: str = setting("score", "seeds of Stage B", choices=("score", "random"))
    screening: str = setting("E1", "evidence of Stage A", choices=("E1", "E2", "auto"))
    order: str = setting("balanced", "which candidate is shown first, in slot A", choices=ORDERS)

    def __post_init__(self) -> None:
        check_settings(self)

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """Algorithm 1."""
        entrants, left_out = enter(entrants, self.shortlist)
        clusters = dedup(entrants, self.representative, rng) if self.dedup == "one" else keep_all(entrants)
        standings = Standings(clusters.cluster_size, rng, floor=self.weight_floor, weighted=self._weighted)
        cascade = _Cascade(
            standings=standings,
            rounds=PairRounds(self.order, rng),
            pool=self._seeded(entrants, standings),
            fallen=[],
            clusters=clusters,
            left_out=left_out,
        )
        if len(cascade.pool) > (self.finalists if self.small_pool == "finals" else 1):
            yield from self._eliminate("A", self._screening_level(entrants), cascade, cascade.pool)
        while len(cascade.pool) > self.finalists:
            drawn = self.reseed_by == "random"
            seeds = rng.sample(cascade.pool, len(cascade.pool)) if drawn else cascade.pool
            yield from self._eliminate("B", Level.FULL, cascade, seeds)
        rescued, facts = self._rescue(cascade)
        cascade.pool += rescued
        cascade.fallen = [loser for loser in cascade.fallen if loser not in rescued]
        games = yield from cascade.rounds.play(
            "C", Level.FULL, round_robin(cascade.pool), ranking=cascade.ranking(), kind="round_robin"
        )
        return self._settle(cascade, games, rescued, facts)

    @property
    def _weighted(self) -> bool:
        return self.weighting == "confidence"

    def _seeded(self, entrants: Sequence[Entrant], standings: Standings) -> list[int]:
        """Seed Stage A: by cluster size, by what is known beforehand, or by chance; best first."""
        if self.seed_by == "random":
            return sorted(standings.luck, key=standings.luck.__getitem__, reverse=True)
        if self.seed_by == "cluster":
            return standings.ordered(standings.luck)
        known = {entrant.id: prior(entrant) for entrant in entrants}
        return sorted(standings.luck, key=lambda one: (known[one], standings.rank(one)), reverse=True)

    def _screening_level(self, entrants: Sequence[Entrant]) -> Level:
        """Evidence of Stage A; `auto` takes E2 where partial views would hardly be shorter."""
        if self.screening != "auto":
            return Level.PARTIAL if self.screening == "E1" else Level.FULL
        return Level.PARTIAL if partial_views_pay(entrants) else Level.FULL

    def _eliminate(self, stage: str, level: Level, cascade: _Cascade, seeds: list[int]) -> Play[None]:
        """One round of Eliminate: slaughter-pair the seeds, judge, keep the better of each pair."""
        standings = cascade.standings
        count = len(seeds) // 2
        if self.reduction == "exact" and len(seeds) > self.finalists:
            count = min(count, len(seeds) - self.finalists)
        pairs, byes = slaughter(seeds, count)
        games = yield from cascade.rounds.play(
            stage, level, pairs, ranking=cascade.ranking(), byes=byes, kind="elimination"
        )
        winners, losers = byes, []
        for game in games:
            standings.record(game)
            winner, loser = self._decide(game, standings)
            winners.append(winner)
            losers.append(loser)
            if stage == "A" and self.rescue == "screened":
                cascade.lost_by[loser] = standings.score[winner] - standings.score[loser]
        cascade.pool = standings.ordered(winners)
        cascade.fallen = standings.ordered(losers) + cascade.fallen

    def _decide(self, game: Game, standings: Standings) -> tuple[int, int]:
        """Winner and loser of a pair: by cumulative S, or by this verdict; ties by S, cluster, luck."""
        a, b = game.a, game.b
        winner = game.winner if self.advance_by == "verdict" else None
        if winner is None:
            winner = standings.better(a, b)
        return winner, b if winner == a else a

    def _rescue(self, cascade: _Cascade) -> tuple[list[int], dict[str, float]]:
        """Rescue (Eq. 5): losers whose elimination looks weak, at most `rescue_count`; and the gap."""
        if self.rescue == "none" or not cascade.fallen:
            return [], {}
        standings = cascade.standings
        weakest = min(cascade.pool, key=standings.rank)
        if self.rescue == "screened":
            gaps: Mapping[int, float] = cascade.lost_by
            fallen = sorted(gaps, key=lambda c: (-gaps[c], standings.rank(c)), reverse=True)
        else:
            fallen = standings.ordered(cascade.fallen)[: self.rescue_count]
            signed = {c: standings.score[weakest] - standings.score[c] for c in fallen}
            gaps = {c: abs(gap) for c, gap in signed.items()} if self.rescue == "paper" else signed
        fallen = fallen[: self.rescue_count]
        if not fallen:
            return [], {}
        narrow = [c for c in fallen if gaps[c] <= self._margin(c, standings) + EPSILON]
        return narrow, {"rescue_gap": gaps[fallen[0]]}

    def _margin(self, loser: int, standings: Standings) -> float:
        """Delta, and twice that for a singleton; the signed rule knows delta alone."""
        rare = standings.cluster_size[loser] == 1 and self.rescue != "signed"
        return self.rescue_margin * (2 if rare else 1)

    def _settle(
        self, cascade: _Cascade, games: Sequence[Game], rescued: list[int], facts: dict[str, float]
    ) -> Selection:
        """Order the finalists by Stage-C win rate (Eq. 4), then the S they came with, cluster, luck."""
        finalists, standings = cascade.pool, cascade.standings
        rates = win_rates(finalists, games, floor=self.weight_floor, weighted=self._weighted)
        cascade.pool = sorted(finalists, key=lambda c: (round(rates[c], 9), standings.rank(c)), reverse=True)
        order = tuple(cascade.ranking())
        scores = rates | _below(min(rates.values()), [*cascade.fallen, *cascade.left_out])
        return Selection(
            order[0], order, tuple(finalists), tuple(rescued), scores, facts, score_kind="win rate"
        )


def _below(lowest: float, players: Sequence[int]) -> dict[int, float]:
    """Scores of players without games in Stage C: even steps from the lowest of the others down to 0."""
    step = lowest / (len(players) + 1)
    return {player: lowest - step * (place + 1) for place, player in enumerate(players)}


CAPS_R = Caps(rescue="paper")
CAPS_PLUS = Caps(
    rescue="screened", advance_by="verdict", small_pool="finals", seed_by="prior", screening="auto"
)
NO_DEDUP = Caps(rescue="paper", dedup="off")
ALL_E2 = Caps(rescue="paper", screening="E2")
UNWEIGHTED = Caps(rescue="paper", weighting="none")
RANDOM_PAIRING = Caps(rescue="paper", seed_by="random")
