"""Run a study: play what is missing, keep every result at once, and hand the results to the tables."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from pathlib import Path

from caps.building import make_prepare
from caps.core.types import Case
from caps.experiments.columns import Book
from caps.experiments.live import play_live
from caps.experiments.lots import Lot
from caps.experiments.measure import Turn
from caps.experiments.results import Result, ResultFile, slug
from caps.experiments.suites import case_digest, difficulty, pool_of, suite_cases
from caps.experiments.synthetic import CHUNK, Errand, run_errands

Hear = Callable[[int], object]


class Bench:
    """A study's results in a folder; a context manager."""

    def __init__(self, lots: Sequence[Lot], folder: Path) -> None:
        self.lots = lots
        names = dict.fromkeys(lot.suite.name for lot in lots)
        self._files = {name: ResultFile(folder / "results" / f"{slug(name)}.jsonl") for name in names}
        self.failures: list[str] = []

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    @property
    def unreadable(self) -> int:
        """Lines that could not be read; what they told is played again."""
        return sum(file.unreadable for file in self._files.values())

    def progress(self, lot: Lot) -> tuple[int, int]:
        """How many units of a lot are done, out of how many."""
        units, found = list(lot.units()), self._files[lot.suite.name].found
        return sum(unit in found for unit in units), len(units)

    def play(self, *, limit: int | None, processes: int, hear: Hear) -> None:
        """Play all that is missing; `hear` is told of every so many results."""
        errands = [
            errand for lot in self.lots if lot.recipe is not None for errand in self._errands(lot, limit)
        ]
        for suite, results in run_errands(errands, processes=processes):
            self._keep(suite, results, hear)
        live = [lot for lot in self.lots if lot.runner is not None]
        if live:
            asyncio.run(self.play_live(live, limit=limit, hear=hear))

    async def play_live(self, lots: Iterable[Lot], *, limit: int | None, hear: Hear) -> None:
        """Play lots against real judges, one after another, each as parallel as its endpoint bears."""
        for lot in lots:
            found = self._files[lot.suite.name].found
            if all(unit in found for unit in lot.units()):
                continue
            cases = list(suite_cases(lot.suite, limit))
            async with aclosing(self._live(lot, cases)) as items:
                async for item in items:
                    if isinstance(item, Result):
                        self._keep(lot.suite.name, [item], hear)
                    else:
                        self.failures.append(f"{lot.suite.name}, {item}")

    def book(self) -> Book:
        """The results of this study alone, by suite and method, in the order it plays them."""
        book: dict[str, dict[str, list[Result]]] = {}
        for lot in self.lots:
            found = self._files[lot.suite.name].found
            for unit in lot.units():
                if unit in found:
                    book.setdefault(lot.suite.name, {}).setdefault(unit[0], []).append(found[unit])
        return book

    def _keep(self, suite: str, results: list[Result], hear: Hear) -> None:
        file = self._files[suite]
        before = len(file.found)
        file.add(results)
        hear(len(file.found) - before)

    def _live(self, lot: Lot, cases: Sequence[Case]) -> AsyncGenerator[Result | str, None]:
        assert lot.runner is not None  # noqa: S101
        found, digests = self._files[lot.suite.name].found, {case.id: case_digest(case) for case in cases}

        def missing(turn: Turn, case: Case) -> bool:
            return (turn.method, turn.seed, case.id, turn.made_of_case(digests[case.id])) not in found

        return play_live(lot.runner, cases, lot.turns, missing)

    def _errands(self, lot: Lot, limit: int | None) -> Iterable[Errand]:
        """The lot in chunks of pools, with the turns that miss any of a chunk."""
        found, recipe = self._files[lot.suite.name].found, lot.recipe
        assert recipe is not None  # noqa: S101
        pools = []
        if not lot.made_up:
            prepare = make_prepare(lot.suite.profile, dict(lot.views))
            for number, case in enumerate(suite_cases(lot.suite, limit)):
                pool = pool_of(prepare(case), number)
                pools.append((pool, case.id, difficulty(case), case_digest(case)))
        for start in range(0, len(lot.cases), CHUNK):
            chunk = lot.cases[start : start + CHUNK]
            turns = tuple(
                turn
                for turn in lot.turns
                if any(
                    (turn.method, turn.seed, name, turn.made_of_case(own)) not in found for name, own in chunk
                )
            )
            numbers = range(start, start + len(chunk))
            if turns:
                yield Errand(lot.suite.name, recipe, numbers, turns, tuple(pools[start : start + CHUNK]))
