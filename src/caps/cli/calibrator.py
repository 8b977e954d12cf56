"""`caps select --calibrate K`: what the judge is worth is estimated on the first cases of the run."""

from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Any

from caps.core.errors import InputError, SettingError
from caps.core.play import Strategy
from caps.core.types import Case
from caps.reports.calibration import calibration_row, calibration_text, judge_row
from caps.session.resolve import Resolved
from caps.session.session import Session
from caps.statistics.judge_measures import LEAST_CASES_TO_LEARN
from caps.studies.calibration import Calibration, believer_of, calibrate, probe_of

MOST_CASES = 2000  # they are held in memory until the last of them has been asked about
Source = Iterable[Case | InputError]


class Calibrator:
    """Estimates the judge's accuracy on the first `count` cases; `found` is the estimate, once known."""

    def __init__(self, resolved: Resolved) -> None:
        config = resolved.config
        self.count, self._resolved = config.calibrate or 0, resolved
        if not LEAST_CASES_TO_LEARN <= self.count <= MOST_CASES:
            raise SettingError(
                f"--calibrate {self.count}: must be from {LEAST_CASES_TO_LEARN} to {MOST_CASES} cases; "
                "50 are a good start"
            )
        if config.journal is None:
            raise SettingError(
                "--calibrate asks about the first cases before they are judged, and without a journal those "
                "calls would be paid for twice: leave out --no-journal"
            )
        if config.engine != "local":
            raise SettingError(f"--calibrate works with --engine local only, not with {config.engine}")
        self._changes = {name.replace("-", "_"): str(value) for name, value in config.settings.items()}
        self._believer = believer_of(resolved.strategy, resolved.strategy_name)
        self.found: Calibration | None = None

    def probes(self, place: int, case: Case) -> tuple[Strategy, ...]:
        """The strategies that ask about a case before the run, by its position."""
        return (probe_of(case, self._believer),) if place < self.count else ()

    async def learn(
        self, session: Session, source: Source, *, advance: Callable[[], object]
    ) -> tuple[Calibration, Strategy, Source]:
        """Ask about the first cases; return the estimate, the strategy that uses it, and all cases."""
        cases, resolved = iter(source), self._resolved
        first = list(islice(cases, self.count))
        readable = [case for case in map(resolved.cases.apply, first) if isinstance(case, Case)]
        self.found = await calibrate(
            session.engine,
            readable,
            self._believer,
            seed=resolved.config.seed,
            fixed=self._changes,
            advance=advance,
        )
        informed = self.found.inform(resolved.strategy, resolved.strategy_name, self._changes)
        return self.found, informed, chain(first, cases)

    def text(self) -> str:
        """The estimate in a line."""
        return "" if self.found is None else calibration_text(self.found)

    def row(self) -> dict[str, Any] | None:
        """The estimate for the file of the run."""
        return None if self.found is None else calibration_row(self.found)

    def judge_file(self, cases: str, session: Session) -> dict[str, Any]:
        """The estimate as `--judge-profile` reads it."""
        if self.found is None:
            return {}
        resolved = self._resolved
        about = {
            "source": f"caps select {cases} --calibrate {self.count}",
            "model": resolved.judge_name,
            "confidence": session.confidence,
            "seed": resolved.config.seed,
        }
        return judge_row(self.found, about)
