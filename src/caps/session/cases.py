"""What a config adds to the cases of a run before they are judged."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from caps.config import RunConfig
from caps.core.errors import InputError
from caps.core.play import Strategy, capabilities_of
from caps.core.types import Case
from caps.engines.base import PerCase
from caps.evidence.domains import domain_named, with_stated_domain
from caps.evidence.entrants import missing_numbers
from caps.files import read_text
from caps.grading.test_suites import has_undeclared_tests
from caps.models.base import Notify, ignore
from caps.prompts.render import takes_criteria
from caps.prompts.reply_forms import CRITERIA_BYTES, parse_criteria

MOST_WARNINGS = 5  # about cases whose candidates lack a number; the rest is counted


class CaseDefaults:
    """Adds to a case what it does not state: domain, criteria, and what its domain computes."""

    def __init__(self, config: RunConfig, warn: Notify) -> None:
        self._config, self._warn = config, warn
        self.criteria = read_criteria(config.criteria)
        self._without_criteria = set[str]()  # the domains whose cases are not judged by the criteria
        self._noted_tests = False

    def apply(self, case: Case | InputError) -> Case | InputError:
        """The case with the defaults; all paths to a judge call this.

        An `InputError` if its domain cannot complete it.
        """
        with_domain = with_stated_domain(case, self._config.domain)
        if isinstance(with_domain, InputError):
            return with_domain
        self._note_undeclared_tests(with_domain)
        return _completed(self._with_criteria(with_domain))

    def __reduce__(self) -> tuple[type["CaseDefaults"], tuple[RunConfig, Notify]]:
        return CaseDefaults, (self._config, ignore)  # a copy in another process warns nobody

    def with_feature_warnings(
        self, cases: Iterable[Case | InputError], strategy: Strategy | PerCase
    ) -> Iterator[Case | InputError]:
        """The same cases; a warning names candidates without the number that the strategy's feature names."""
        name = getattr(strategy, "feature", "") if capabilities_of(strategy).uses_feature else ""
        lacking = 0
        for case in cases:
            message = missing_numbers(case, name) if name and isinstance(case, Case) else ""
            if message and lacking < MOST_WARNINGS:
                self._warn(message)
            lacking += bool(message)
            yield case
        if lacking > MOST_WARNINGS:
            self._warn(f"{lacking - MOST_WARNINGS} further cases have candidates without a number {name!r}")

    def _with_criteria(self, case: Case) -> Case:
        if not self.criteria or case.criteria:
            return case
        if takes_criteria(domain_named(case.domain)):
            return replace(case, criteria=self.criteria)
        if case.domain not in self._without_criteria:
            self._without_criteria.add(case.domain)
            self._warn(
                f"criteria: not used for cases of the domain {case.domain!r}, whose prompts ask what is "
                "correct; --domain general judges cases that state no domain by them"
            )
        return case

    def _note_undeclared_tests(self, case: Case) -> None:
        """Say once that tests which may be hidden are not used to choose."""
        if self._noted_tests or "tests" not in domain_named(case.domain).fields:
            return
        if has_undeclared_tests(case.extra):
            self._noted_tests = True
            self._warn(
                "tests: used to grade and never to choose, since they may be hidden; to choose by them, "
                'declare them public: "tests": {"public": …}'
            )


def _completed(case: Case) -> Case | InputError:
    """The case with the fields that its domain computes."""
    complete = domain_named(case.domain).complete
    if complete is None:
        return case
    try:
        return complete(case)
    except InputError as error:
        return InputError(f"case {case.id!r}: {error}")


def read_criteria(text: str | None) -> tuple[str, ...]:
    """What makes an answer better, for cases that state no criteria of their own."""
    if text is None:
        return ()
    if text.startswith("@"):
        text = read_text(text[1:], option="--criteria", most=CRITERIA_BYTES)
    return parse_criteria(text, "criteria")
