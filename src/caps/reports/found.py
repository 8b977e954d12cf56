"""What hard evidence found, for a result and for a run."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from caps.judges.base import Bout


def found_line(bout: Bout) -> dict[str, Any]:
    """How many public examples each candidate passes; nothing where none was run."""
    found = [one.found for one in bout.case.candidates]
    known = [one for one in found if one is not None and one.passed is not None]
    if not known:
        return {}
    passed = [None if one is None else one.passed for one in found]
    return {"tests_passed": passed, "examples": known[0].examples}


@dataclass(slots=True)
class FoundSummary:
    """Running totals of what was found."""

    cases: int = 0
    candidates: int = 0
    clusters: int = 0
    unparsed: int = 0
    passed: int = 0
    tried: int = 0
    unusable: Counter[str] = field(default_factory=Counter)

    def add(self, bout: Bout) -> None:
        """Count one case."""
        found = [one.found for one in bout.case.candidates if one.found is not None]
        if not found:
            return
        self.cases += 1
        self.candidates += len(bout.case.candidates)
        self.clusters += len({fact.cluster or place for place, fact in enumerate(found)})
        self.unparsed += sum(one.parses is False for one in found)
        tried = [one for one in found if one.passed is not None]
        self.tried += len(tried)
        self.passed += sum(one.passed == one.examples for one in tried)

    def as_line(self) -> dict[str, Any]:
        """All of it as plain data."""
        names = ("cases", "candidates", "clusters", "unparsed", "passed", "tried")
        counts = {name: getattr(self, name) for name in names}
        return {**counts, "unusable": dict(self.unusable)}

    def as_text(self) -> list[str]:
        """A line or two for people."""
        lines = []
        if self.cases:
            cases = "1 case" if self.cases == 1 else f"{self.cases} cases"
            words = (
                f"hard evidence: {self.candidates} candidates in {cases}, {self.clusters} distinct answers"
            )
            if self.tried:
                words += f"; {self.passed} of {self.tried} programs pass all public examples"
            if self.unparsed:
                words += f", {self.unparsed} cannot be parsed"
            lines.append(words)
        lines += [f"hard evidence: {count} cases without: {why}" for why, count in self.unusable.items()]
        return lines
