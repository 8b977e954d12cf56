"""What a config adds to the cases of a run before they are judged."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property

from caps.config import RunConfig
from caps.core.errors import InputError
from caps.core.play import Strategy, capabilities_of
from caps.core.types import Case
from caps.engines.base import PerCase
from caps.evidence.domains import REPOSITORY_DIGEST, domain_named, with_stated_domain
from caps.evidence.entrants import missing_numbers
from caps.files import read_text
from caps.findings.repositories import digest_of
from caps.graders.test_suites import has_undeclared_tests
from caps.models.base import Notify
from caps.prompts.criteria import MOST_BYTES, parse_criteria
from caps.prompts.render import takes_criteria

MOST_WARNINGS = 5  # about cases whose candidates lack a number; the rest is counted


class CaseDefaults:
    """Adds to a case what it does not state: domain and criteria, and the files of its repository."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._repositories: dict[object, str] = {}  # their digests, each computed once
        self._without_criteria = set[str]()  # the domains whose cases are not judged by the criteria
        self._noted_tests = False

    def apply(self, case: Case | InputError, warn: Notify) -> Case | InputError:
        """The case with the defaults; a repository that cannot be read is an `InputError`."""
        stated = with_stated_domain(case, self._config.domain)
        if isinstance(stated, InputError):
            return stated
        self._note_undeclared_tests(stated, warn)
        return self._with_repository(self._with_criteria(stated, warn))

    @cached_property
    def criteria(self) -> tuple[str, ...]:
        """What makes an answer better, for cases that state no criteria of their own."""
        stated = self._config.criteria
        if stated is None:
            return ()
        if stated.startswith("@"):
            stated = read_text(stated[1:], option="--criteria", most=MOST_BYTES)
        return parse_criteria(stated, "criteria")

    def _with_criteria(self, case: Case, warn: Notify) -> Case:
        if not self.criteria or case.criteria:
            return case
        if takes_criteria(domain_named(case.domain)):
            return replace(case, criteria=self.criteria)
        if case.domain not in self._without_criteria:
            self._without_criteria.add(case.domain)
            warn(
                f"criteria: not used for cases of the domain {case.domain!r}, whose prompts ask what is "
                "correct; --domain general judges cases that state no domain by them"
            )
        return case

    def _note_undeclared_tests(self, case: Case, warn: Notify) -> None:
        """Say once that tests which may be hidden are not used to choose."""
        if self._noted_tests or "tests" not in domain_named(case.domain).fields:
            return
        if has_undeclared_tests(case.extra):
            self._noted_tests = True
            warn(
                "tests: used to grade and never to choose, since they may be hidden; to choose by them, "
                'declare them public: "tests": {"public": …}'
            )

    def _with_repository(self, case: Case) -> Case | InputError:
        """The case with a digest of its repository, so that findings are kept for these files only."""
        if REPOSITORY_DIGEST not in domain_named(case.domain).fields or not case.extra.get("repository"):
            return case
        root, digest = self._config.repositories, None
        if root is not None:
            key = (case.extra.get("repository"), case.extra.get("commit"))
            try:
                digest = self._repositories.get(key) or digest_of(root, case)
            except InputError as error:
                return InputError(f"case {case.id!r}: {error}")
            self._repositories[key] = digest
        return replace(case, extra={**case.extra, REPOSITORY_DIGEST: digest})


def with_feature_warnings(
    cases: Iterable[Case | InputError], strategy: Strategy | PerCase, warn: Notify
) -> Iterator[Case | InputError]:
    """The same cases; a warning names candidates without the number that the strategy's feature names."""
    name = getattr(strategy, "feature", "") if capabilities_of(strategy).uses_feature else ""
    lacking = 0
    for case in cases:
        message = missing_numbers(case, name) if name and isinstance(case, Case) else ""
        if message and lacking < MOST_WARNINGS:
            warn(message)
        lacking += bool(message)
        yield case
    if lacking > MOST_WARNINGS:
        warn(f"{lacking - MOST_WARNINGS} further cases have candidates without a number {name!r}")
