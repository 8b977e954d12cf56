"""`--calibrate K`: the first cases show what the judge is worth; that is frozen, told and written down."""

from collections.abc import Callable, Iterable
from itertools import chain, islice

from caps.core.errors import InputError, SettingError
from caps.core.play import Strategy
from caps.core.types import Case
from caps.runner import Runner, Session
from caps.statistics.judge_measures import LEAST_CASES
from caps.studies.calibration import Calibration, believer_of, calibrate, probe_of

MOST_CASES = 2000  # they are held in memory until the last of them is asked about
Source = Iterable[Case | InputError]


class Calibrating:
    """How many cases come first, and the strategy that is to learn from them."""

    def __init__(self, runner: Runner) -> None:
        config = runner.config
        self.count, self._runner = config.calibrate or 0, runner
        if not LEAST_CASES <= self.count <= MOST_CASES:
            raise SettingError(
                f"--calibrate {self.count}: must be from {LEAST_CASES} to {MOST_CASES} cases; fewer say "
                "nothing, 50 are a good start"
            )
        if config.journal is None:
            raise SettingError(
                "--calibrate asks about the first cases before they are judged: without a journal "
                "that would be paid twice; leave --no-journal out"
            )
        if config.engine != "local":
            raise SettingError(
                f"--calibrate asks in two steps: it goes with --engine local, not {config.engine}"
            )
        self._changes = {name.replace("-", "_"): str(value) for name, value in config.settings.items()}
        self._believer = believer_of(runner.strategy, runner.strategy_name)

    def asking(self, place: int, case: Case) -> tuple[Strategy, ...]:
        """What is asked of a case before it is played, by its place."""
        return (probe_of(case, self._believer),) if place < self.count else ()

    async def learn(
        self, session: Session, source: Source, *, advance: Callable[[], object]
    ) -> tuple[Calibration, Strategy, Source]:
        """Ask about the first cases: what was learnt, the strategy that knows it, and all cases again."""
        cases, runner = iter(source), self._runner
        first = list(islice(cases, self.count))
        readable = [case for case in first if isinstance(case, Case)]
        found = await calibrate(
            session.engine,
            readable,
            self._believer,
            seed=runner.config.seed,
            fixed=self._changes,
            advance=advance,
        )
        informed = found.inform(runner.strategy, runner.strategy_name, self._changes)
        return found, informed, chain(first, cases)
