"""Pairing rules, seeding, and which candidate of a pair is shown first (slot A).

`PairRounds` serves strategies that play whole rounds (CAPS, V1-Infer, …), `SlotHistory` those that choose
pair by pair (`posterior`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from random import Random

from caps.core.play import Game, Play, compare
from caps.core.types import Ask, Entrant, Level, Pairing, RoundKind, Verdict

Pair = tuple[int, int]

ORDERS = ("balanced", "as-paired", "both")
DIALECTS = ("verdicts", "ratings")
LEAST_GAMES = ("n", "budget")

PRIOR = ("parses", "tests_passed", "score", "logprob")


def prior(entrant: Entrant) -> tuple[float, ...]:
    """Sort key from what is known before any judge is asked, most important first; larger is better."""
    return tuple(entrant.features.get(name, float("-inf")) for name in PRIOR)


def slaughter(seeds: Sequence[int], count: int) -> tuple[list[Pair], list[int]]:
    """Pair the i-th seed with the i-th from the end, `count` times; the middle seeds have byes."""
    top, bottom = seeds[:count], seeds[len(seeds) - count :]
    return list(zip(top, reversed(bottom), strict=True)), list(seeds[count : len(seeds) - count])


def games_within(budget: float, n: int, least: str) -> int:
    """How many games `budget` per candidate pays for; V1-Infer plays one per candidate in any case."""
    games = int(budget * n)
    return max(n, games) if least == "n" else max(1, games)


def round_robin(players: Sequence[int]) -> list[Pair]:
    """Every unordered pair once."""
    return list(combinations(players, 2))


class PairRounds:
    """Assigns slots to pairs and plays them as rounds; one object serves a whole contest.

    `balanced`: within a round each candidate is shown in A as often as in B, up to one. The candidate with
    more turns in A in earlier rounds goes to B; equal ones are decided by the seed. `as-paired`: the first
    of a pair is in A. `both`: each pair is asked in both orders and the ratings are averaged. A pair asked
    again in the same order is a further draw.
    """

    def __init__(self, order: str, rng: Random, *, dialect: str = "verdicts") -> None:
        self._order, self._rng, self._dialect = order, rng, dialect
        self._lead: dict[int, int] = {}
        self._met: dict[Level, dict[Pair, int]] = {}

    @property
    def asks_per_pair(self) -> int:
        """Number of asks per pair."""
        return 2 if self._order == "both" else 1

    def play(
        self,
        stage: str,
        level: Level,
        pairs: Sequence[Pair],
        *,
        ranking: Sequence[int],
        byes: Sequence[int] = (),
        kind: RoundKind = "comparison",
    ) -> Play[list[Game]]:
        """Play the pairs as one round; return one game per pair, in the order given."""
        games = yield from compare(
            stage, self.assign_slots(pairs, level), ranking=ranking, byes=byes, kind=kind
        )
        if self._order != "both":
            return games
        return [average(there, back) for there, back in zip(games[::2], games[1::2], strict=True)]

    def assign_slots(self, pairs: Sequence[Pair], level: Level) -> list[Pairing]:
        """Turn pairs into asks: decide which candidate is in slot A."""
        if self._order == "balanced":
            pairs = self._balance(pairs)
        elif self._order == "both":
            pairs = [order for a, b in pairs for order in ((a, b), (b, a))]
        asks, met = [], self._met.setdefault(level, {})
        for pair in pairs:
            a, b = pair
            draw = met.get(pair, 0)
            met[pair] = draw + 1
            asks.append(Pairing(a, b, level, draw, self._dialect))
        return asks

    def _balance(self, pairs: Sequence[Pair]) -> list[Pair]:
        if len({player for pair in pairs for player in pair}) == 2 * len(pairs):
            return self._assign_disjoint(pairs)
        return self._walk(pairs)

    def _assign_disjoint(self, pairs: Sequence[Pair]) -> list[Pair]:
        """Assign slots of disjoint pairs: the candidate with more turns in A goes to B; ties are random."""
        lead, chance, assigned = self._lead, self._rng.random, list[Pair]()
        for a, b in pairs:
            lead_a, lead_b = lead.get(a, 0), lead.get(b, 0)
            if lead_a < lead_b or (lead_a == lead_b and chance() < 0.5):
                lead[a], lead[b] = lead_a + 1, lead_b - 1
                assigned.append((a, b))
            else:
                lead[a], lead[b] = lead_a - 1, lead_b + 1
                assigned.append((b, a))
        return assigned

    def _walk(self, pairs: Sequence[Pair]) -> list[Pair]:
        """Walk the games as trails, each player leaving a game in B for the next in A.

        The inner players of a trail are balanced; its first is in A once more, its last in B. Trails start at
        players with an odd number of games, those with the fewest turns in A first, so no player is off by
        more than one.
        """
        games_of: dict[int, list[int]] = {}
        lead, chance = self._lead, self._rng.random
        for _, index in sorted([(chance(), index) for index in range(len(pairs))]):
            for player in pairs[index]:
                games_of.setdefault(player, []).append(index)
        starts = sorted([(len(games) % 2 == 0, lead.get(p, 0), chance(), p) for p, games in games_of.items()])
        assigned: dict[int, Pair] = {}
        for *_, start in (*starts, *starts):  # a trail that ended elsewhere may leave its start with circuits
            player, trail = start, []
            while games := games_of[player]:
                game = games.pop()
                if game not in assigned:
                    a, b = pairs[game]
                    other = b if player == a else a
                    assigned[game] = (player, other)
                    trail.append(game)
                    player = other
            if player != start:
                lead[start] = lead.get(start, 0) + 1
                lead[player] = lead.get(player, 0) - 1
            elif trail and chance() < 0.5:
                assigned |= {game: assigned[game][::-1] for game in trail}
        return [assigned[index] for index in range(len(pairs))]


class SlotHistory:
    """Counts how often each candidate was shown and in which slot, for strategies that go pair by pair."""

    def __init__(self, luck: Mapping[int, float]) -> None:
        self._luck = luck
        self._shown: Counter[tuple[int, Level]] = Counter()
        self._met: Counter[tuple[int, int, Level]] = Counter()
        self._lead: Counter[int] = Counter()

    def record(self, ask: Ask) -> None:
        """Count a comparison."""
        if isinstance(ask, Pairing):
            self._shown.update([(ask.a, ask.level), (ask.b, ask.level)])
            self._met[ask.a, ask.b, ask.level] += 1
            self._lead.update({ask.a: 1, ask.b: -1})

    def was_asked(self, ask: Pairing) -> bool:
        """Whether the same two were compared before, in this order and at this level."""
        return self._met[ask.a, ask.b, ask.level] > 0

    def least_shown(self, players: Sequence[int], level: Level) -> int:
        """The candidate that was shown least at a level; the first of equals."""
        return min(players, key=lambda player: self._shown[player, level])

    def orders(self, a: int, b: int, level: Level) -> list[Pair]:
        """Both orders of a pair, best first: the less asked one, else fewer turns in A, else random."""
        return sorted([(a, b), (b, a)], key=lambda pair: self._due(pair[0], pair[1], level))

    def _due(self, a: int, b: int, level: Level) -> tuple[float, ...]:
        """Sort key of an order: asks in it at this level and at any level, turns of `a` in slot A, random."""
        met = self._met
        ever = met[a, b, Level.PARTIAL] + met[a, b, Level.FULL]
        return met[a, b, level], ever, self._lead[a], self._luck[a]


def average(there: Game, back: Game) -> Game:
    """Merge the two orders of one pair; if one went unanswered the other counts alone."""
    mirrored = None if back.verdict is None else back.verdict.swapped()
    if there.verdict is None or mirrored is None:
        return there._replace(verdict=there.verdict or mirrored)
    mean = Verdict((there.verdict.a + mirrored.a) / 2, (there.verdict.b + mirrored.b) / 2)
    return there._replace(verdict=mean)
