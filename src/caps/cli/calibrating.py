"""`--calibrate K`: the first cases show what the judge is worth; that is frozen, told and written down."""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain, islice

from caps.assemble import Session, Setup
from caps.core.errors import InputError, SettingError
from caps.core.play import Strategy
from caps.core.types import Case
from caps.diagnostics.learnt import LEAST_CASES
from caps.experiments.calibration import Calibration, believer_of, calibrate, probe_of

MOST_CASES = 2000  # they are held in memory until the last of them is asked about
Source = Iterable[Case | InputError]


class Calibrating:
    """How many cases come first, and the strategy that is to learn from them."""

    def __init__(self, count: int, name: str, strategy: Strategy, changes: Mapping[str, str]) -> None:
        if not LEAST_CASES <= count <= MOST_CASES:
            raise SettingError(
                f"--calibrate {count}: must be from {LEAST_CASES} to {MOST_CASES} cases; fewer say nothing, "
                "50 are a good start"
            )
        self.count, self._name, self._strategy = count, name, strategy
        self._changes = {field.replace("-", "_"): word for field, word in changes.items()}
        self._believer = believer_of(strategy, name)

    def check(self, setup: Setup) -> None:
        """Refuse what cannot go with it."""
        if setup.journal is None:
            raise SettingError(
                "--calibrate asks about the first cases before they are played: without a journal "
                "that would be paid twice; leave --no-journal out"
            )
        if setup.engine != "local":
            raise SettingError(
                f"--calibrate asks in two steps: it goes with --engine local, not {setup.engine}"
            )

    def asking(self, place: int, case: Case) -> tuple[Strategy, ...]:
        """What is asked of a case before it is played, by its place."""
        return (probe_of(case, self._believer),) if place < self.count else ()

    async def learn(
        self, ready: Session, source: Source, *, seed: int, advance: Callable[[], object]
    ) -> tuple[Calibration, Strategy, Source]:
        """Ask about the first cases: what was learnt, the strategy that knows it, and all cases again."""
        cases = iter(source)
        first = list(islice(cases, self.count))
        readable = [case for case in first if isinstance(case, Case)]
        found = await calibrate(
            ready.engine, readable, self._believer, seed=seed, fixed=self._changes, advance=advance
        )
        return found, found.inform(self._strategy, self._name, self._changes), chain(first, cases)
