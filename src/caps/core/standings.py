"""Standings: confidence-weighted scores (Eq. 3), win rates (Eq. 4), and tie-breaking."""

from collections.abc import Iterable, Mapping
from random import Random

from caps.core.play import Game
from caps.core.types import Verdict

EPSILON = 1e-9


class Tally:
    """Running sums over games: `score` is the paper's S (Eq. 3), `rate` its win rate (Eq. 4)."""

    def __init__(self, players: Iterable[int], *, floor: float, weighted: bool = True) -> None:
        self.score = dict.fromkeys(players, 0.0)
        self._at_stake = dict.fromkeys(self.score, 0.0)
        self._floor = floor
        self._weighted = weighted

    def weigh(self, verdict: Verdict) -> float:
        """The weight w of a game, at least the floor; 1 without weighting."""
        if not self._weighted:
            return 1.0
        weight = verdict.weight
        return weight if weight > self._floor else self._floor

    def record(self, game: Game) -> None:
        """Add one game; an unanswered one is ignored."""
        a, b, verdict = game
        if verdict is None:
            return
        weight, score, at_stake = self.weigh(verdict), self.score, self._at_stake
        at_stake[a] += weight
        at_stake[b] += weight
        if verdict.a > verdict.b:
            score[a] += weight
        elif verdict.a < verdict.b:
            score[b] += weight
        else:
            score[a] += weight / 2
            score[b] += weight / 2

    def rate(self, player: int) -> float:
        """Share of the weight at stake that this player won; ½ before any game."""
        at_stake = self._at_stake[player]
        return self.score[player] / at_stake if at_stake else 0.5


class Ratings(Tally):
    """A tally that also keeps mean ratings, by which V1-Infer breaks ties in the win rate."""

    def __init__(self, players: Iterable[int], *, floor: float) -> None:
        super().__init__(players, floor=floor)
        self._ratings: dict[int, list[float]] = {player: [] for player in self.score}

    def record(self, game: Game) -> None:
        """Add one game and its two ratings."""
        super().record(game)
        if game.verdict is not None:
            self._ratings[game.a].append(game.verdict.a)
            self._ratings[game.b].append(game.verdict.b)

    def mean_rating(self, player: int) -> float:
        """Mean of the ratings received; 0 before any game."""
        ratings = self._ratings[player]
        return sum(ratings) / len(ratings) if ratings else 0.0

    def ranked(self, players: Iterable[int]) -> list[int]:
        """Best first: by win rate, then mean rating, then the given order."""
        return sorted(players, key=lambda c: (-self.rate(c), -self.mean_rating(c)))


class Standings(Tally):
    """A tally of cluster representatives: ties in S go to the larger cluster, then to a seeded draw."""

    def __init__(
        self, cluster_size: Mapping[int, int], rng: Random, *, floor: float, weighted: bool = True
    ) -> None:
        super().__init__(cluster_size, floor=floor, weighted=weighted)
        self.cluster_size = cluster_size
        self.luck = {player: rng.random() for player in cluster_size}

    def rank(self, player: int) -> tuple[float, int, float]:
        """Sort key, larger is better: S (rounded, since the order of sums changes it), cluster, luck."""
        return round(self.score[player], 9), self.cluster_size[player], self.luck[player]

    def better(self, a: int, b: int) -> int:
        """The better of two players."""
        gap = self.score[a] - self.score[b]
        if abs(gap) > EPSILON:
            return a if gap > 0 else b
        return max(a, b, key=self.rank)

    def ordered(self, players: Iterable[int]) -> list[int]:
        """Best first."""
        score, size, luck = self.score, self.cluster_size, self.luck
        return sorted(players, key=lambda c: (round(score[c], 9), size[c], luck[c]), reverse=True)


def win_rates(
    players: Iterable[int], games: Iterable[Game], *, floor: float, weighted: bool = True
) -> dict[int, float]:
    """Confidence-normalised win rate of each player over these games alone (Eq. 4)."""
    tally = Tally(players, floor=floor, weighted=weighted)
    for game in games:
        tally.record(game)
    return {player: tally.rate(player) for player in tally.score}
