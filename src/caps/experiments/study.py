"""A study: suites x strategies x seeds, and the tables they fill; plain data, as a study file says it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from caps.config import RunConfig
from caps.core.play import Strategy

SIMULATED = "simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Problems with candidates: a file of labelled cases, or pools the simulator makes up.

    `problems` is how many the paper counts, `get` the way to the file in words; `model` and `base_url`
    stand in for the study's own judge.
    """

    name: str
    cases: Path | None = None
    n: int | None = None
    problems: int | None = None
    get: str = ""
    profile: str | None = None
    model: str | None = None
    base_url: str | None = None
    simulated: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A strategy under the name it has in the tables, possibly with views of its own.

    `simulated` changes pools and judge where views are not real: a longer partial view, say. `stated` tells
    it what a simulated judge is worth: as measured on other problems, if some settings were those given.
    """

    name: str
    use: str
    strategy: Strategy
    views: Mapping[str, str] = field(default_factory=dict)
    simulated: Mapping[str, Any] = field(default_factory=dict)
    stated: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """A table: suites, methods or strata down, the same across, some metrics in each cell.

    `published` holds the paper's figures by row and column; `readings` say where they cannot be right.
    """

    name: str
    title: str
    down: str = "suites"
    across: str = "methods"
    metrics: tuple[str, ...] = ("pass_at_1",)
    suites: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    baseline: str | None = None
    average: bool = False
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    readings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """All of it; `reference` is the method token shares are measured against.

    `judge` holds the settings of its runs; the model `simulated` is the synthetic judge.
    """

    path: Path
    title: str
    seeds: tuple[int, ...]
    suites: tuple[Suite, ...]
    methods: tuple[Method, ...]
    tables: tuple[TableSpec, ...]
    about: str = ""
    reference: str | None = None
    judge: RunConfig = field(default_factory=RunConfig)
    simulated: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem
