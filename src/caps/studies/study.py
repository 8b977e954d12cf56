"""Studies: suites x strategies x seeds and the tables they fill, read from TOML files."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from caps.building import make_strategy
from caps.config import RunConfig, options, read_values
from caps.core.errors import SettingError
from caps.core.judge_profile import JudgeProfile
from caps.core.play import Strategy
from caps.core.settings import check_settings, nearest, setting, settings_of
from caps.evidence.domains import domain_named
from caps.evidence.profiles import GENERAL, profile_named, with_views
from caps.files import read_toml
from caps.judging.profiles import with_profile
from caps.judging.simulated import PRESETS, JudgeModel, judge_of
from caps.studies.metrics import METRICS
from caps.studies.results import slug
from caps.studies.simulation import LabelledPool, PoolModel

SIMULATED = "simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Problems with candidates: a file of labelled cases, or pools the simulator makes up.

    `problems` is how many the paper counts, `get` the way to the file in words; `model` and `base_url`, or
    `recorded` verdicts and whose they are, stand in for the study's own judge, and `judge` for single
    settings of it: the room for a reply, say. `views` stand in for those of the profile. With `shuffle`,
    every seed puts the candidates into another order before a real or recorded judge sees them. `domain` is
    that of cases that state none.
    """

    name: str
    cases: Path | None = None
    n: int | None = None
    problems: int | None = None
    get: str = ""
    domain: str | None = None
    profile: str | None = None
    model: str | None = None
    base_url: str | None = None
    judge: Mapping[str, Any] = field(default_factory=dict)
    views: Mapping[str, str] = field(default_factory=dict)
    recorded: Path | None = None
    recorded_judge: str | None = None
    shuffle: bool = False
    simulated: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A strategy under its name in the tables, optionally with its own views.

    `simulated` changes the simulated pools and judge, for a longer partial view, say. `stated` gives the
    strategy a profile of the simulated judge, measured on other problems with these settings changed.
    `output` names the file of its selections: `caps_r_f{finalists}_seed{seed}` takes fields of the strategy.
    """

    name: str
    use: str
    strategy: Strategy
    views: Mapping[str, str] = field(default_factory=dict)
    simulated: Mapping[str, Any] = field(default_factory=dict)
    stated: Mapping[str, Any] | None = None
    output: str = ""

    def output_name(self, seed: int) -> str:
        """The name of the file of its selections with a seed, without an ending."""
        if not self.output:
            return f"{slug(self.name)}_seed{seed}"
        return self.output.format_map({**settings_of(self.strategy), "seed": seed})


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
    """A whole study; `reference` is the method that token shares are relative to.

    `judge` holds the settings of its runs; the model `simulated` is the simulated judge.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """Several studies that are run one after another and reported on one page."""

    path: Path
    title: str
    studies: tuple[Study, ...]
    about: str = ""

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem


# Sections of a TOML file, read strictly


T = TypeVar("T")
KINDS = {
    str: "a text", int: "a whole number", float: "a number", bool: "true or false", list: "a list",
    dict: "a table",
}  # fmt: skip


class Section:
    """Values to be taken one by one; `finish` refuses those left over."""

    def __init__(self, values: Mapping[str, Any], file: str, where: str = "") -> None:
        self._left, self._file, self._where = dict(values), file, where
        self._known: list[str] = []

    def take(self, name: str, kind: type, default: Any = ...) -> Any:
        """The value under a name, of this kind; required without a default."""
        self._known.append(name)
        if name not in self._left:
            if default is ...:
                raise self.wrong(name, f"is missing; {KINDS[kind]} is wanted")
            return default
        value = self._left.pop(name)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.wrong(name, f"must be {KINDS[kind]}, not {value!r}")
        return value

    def texts(self, name: str, default: Any = ...) -> tuple[str, ...]:
        """A list of texts."""
        values = self.take(name, list, default)
        for value in values:
            if not isinstance(value, str):
                raise self.wrong(name, f"must be a list of texts; {value!r} is none")
        return tuple(values)

    def tables(self, name: str) -> Iterator["Section"]:
        """The tables of a list as sections; a text is a section with that name only."""
        for place, value in enumerate(self.take(name, list)):
            where = f"{self._where}{name}[{place}]."
            table = {"name": value} if isinstance(value, str) else value
            if not isinstance(table, dict):
                raise self.wrong(f"{name}[{place}]", f"must be a table, not {value!r}")
            yield Section(table, self._file, where)

    def table(self, name: str) -> "Section":
        """A table as a section; empty if it is absent."""
        return Section(self.take(name, dict, {}), self._file, f"{self._where}{name}.")

    @property
    def place(self) -> tuple[str, str]:
        """The file, and the path of this section in it."""
        return self._file, self._where

    def rest(self) -> dict[str, Any]:
        """All values not taken yet."""
        left, self._left = self._left, {}
        return left

    def finish(self) -> None:
        """Raise `SettingError` for a key that was not taken."""
        for name in self._left:
            raise self.wrong(
                name, f"no such key; {nearest(name, self._known)}keys are {', '.join(self._known)}"
            )

    def wrong(self, name: str, words: str) -> SettingError:
        """An error that names the file and the key."""
        return SettingError(f"{self._file}: {self._where}{name}: {words}")

    def checked(self, name: str, make: Callable[[], T]) -> T:
        """Call `make` for the value under a name; a `SettingError` gets the file and the key."""
        try:
            return make()
        except SettingError as error:
            raise self.wrong(name, str(error)) from None


# Simulated suites: the flat settings of a study file, divided into pools, judge and strata


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """Simulated problems of one difficulty: their number and solve rate."""

    difficulty: str = setting("", "the label")
    problems: int = setting(1, "how many", least=1)
    solve_rate: float = setting(0.4, "mean share of right candidates", least=0.01, most=0.99)

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Pools to generate (none if `problems` is 0) and the judge for them."""

    problems: int
    seed: int
    pool: PoolModel
    judge: JudgeModel
    strata: tuple[Stratum, ...] = ()

    @property
    def count(self) -> int:
        """The number of pools."""
        return sum(stratum.problems for stratum in self.strata) or self.problems

    def make(self, numbers: range) -> Iterator[tuple[LabelledPool, str | None]]:
        """Pools by number with their difficulty; each depends only on its number and the seed."""
        for number in numbers:
            stratum = self._stratum(number)
            if stratum is None:
                yield self.pool.pool(number, self.seed), None
            else:
                model = replace(self.pool, solve_rate=stratum.solve_rate)
                yield model.pool(number, self.seed), stratum.difficulty

    def _stratum(self, number: int) -> Stratum | None:
        for stratum in self.strata:
            if number < stratum.problems:
                return stratum
            number -= stratum.problems
        return None


def recipe(values: Mapping[str, Any], n: int | None = None) -> Recipe:
    """Read flat settings; an unknown one, or one outside its limits, is a `SettingError` that names it."""
    left = dict(values)
    problems, seed = left.pop("problems", 0), left.pop("seed", 1234)
    preset = left.pop("preset", None)
    if preset is not None and preset not in PRESETS:
        raise SettingError(f"preset = {preset!r}: must be one of {', '.join(PRESETS)}")
    strata = tuple(_made(Stratum, row) for row in left.pop("strata", []))
    for name, number in (("problems", problems), ("seed", seed)):
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise SettingError(f"{name} = {number!r}: must be a whole number of at least 0")
    pool_names, judge_names = _names(PoolModel), _names(JudgeModel)
    known = ["problems", "seed", "strata", "preset", *pool_names, *judge_names]
    for name in left:
        if name not in known:
            raise SettingError(f"there is no {name!r}: {nearest(name, known)}there are {', '.join(known)}")
    pool = _made(PoolModel, {k: v for k, v in left.items() if k in pool_names} | ({"n": n} if n else {}))
    flaws = {k: v for k, v in left.items() if k in judge_names}
    if preset is not None:
        judge = replace(PRESETS[preset], **flaws)
    else:
        judge = judge_of(**flaws) if "accuracy" in flaws else JudgeModel(**flaws)
    return Recipe(problems=problems, seed=seed, pool=pool, judge=judge, strata=strata)


def _names(kind: Any) -> list[str]:
    return [spec.name for spec in fields(kind)]


def _made(kind: Any, values: Mapping[str, Any]) -> Any:
    for name in values:
        if name not in _names(kind):
            raise SettingError(f"{kind.__name__} has no {name!r}; it has {', '.join(_names(kind))}")
    return kind(**values)


# From a TOML file to a `Study`; an unknown key is an error that names file and key.
#
# Paths in it are relative to the file, those of suites to another folder if one is given. A suite may be
# a name alone, looked up in `suites_file`, or be `like` such a one with some keys changed.


DOWN = ("suites", "methods", "disagreements")
ACROSS = ("methods", "suites", "strata", "nothing")
DEFAULT_SEEDS = [1234, 1235, 1236]
NOT_OF_THE_JUDGE = (
    "strategy", "settings", "seed", "calibrate", "profile", "views", "domain", "journal", "engine",
)  # fmt: skip
_FILE_NAME = re.compile(r"[\w.-]{1,100}")


def load_studies(path: Path, data: Path | None = None) -> Study | Collection:
    """Read a file that describes a study, or names the files of several under `studies`."""
    values = read_toml(path)
    if "studies" not in values:
        return load_study(path, data)
    section = Section(values, str(path))
    files = [path.parent / name for name in section.texts("studies")]
    title, about = section.take("title", str), section.take("about", str, "")
    section.finish()
    if not files or len({file.stem for file in files}) < len(files):
        raise section.wrong("studies", "must be names of files, each another one")
    return Collection(
        path=path, title=title, about=about, studies=tuple(load_study(file, data) for file in files)
    )


def load_study(path: Path, data: Path | None = None) -> Study:
    """Read and check a study before anything runs; `data` is the folder of its suites' files."""
    section = Section(read_toml(path), str(path))
    shelf = _shelf(section, path)
    shared = section.take("simulated", dict, {})
    suites = tuple(_suite(one, shelf, shared, data or path.parent) for one in section.tables("suites"))
    methods = tuple(_method(one) for one in section.tables("strategies"))
    tables = tuple(_table(one) for one in section.tables("tables"))
    seeds = section.take("seeds", list, DEFAULT_SEEDS)
    if not seeds or any(not isinstance(seed, int) or isinstance(seed, bool) for seed in seeds):
        raise section.wrong("seeds", f"must be a list of whole numbers, not {seeds!r}")
    study = Study(
        path=path,
        title=section.take("title", str),
        about=section.take("about", str, ""),
        seeds=tuple(dict.fromkeys(seeds)),
        suites=suites,
        methods=methods,
        tables=tables,
        reference=section.take("reference", str, None),
        judge=_judge(section.table("judge"), path),
        simulated=shared,
    )
    section.finish()
    _check_names(study, section)
    return study


def _shelf(section: Section, path: Path) -> dict[str, dict[str, Any]]:
    """The suites of another file, by name."""
    name = section.take("suites_file", str, None)
    if name is None:
        return {}
    file = path.parent / name
    shelf = Section(read_toml(file), str(file))
    listed = {one.take("name", str): one.rest() for one in shelf.tables("suites")}
    shelf.finish()
    return listed


def _suite(section: Section, shelf: dict[str, dict[str, Any]], shared: dict[str, Any], data: Path) -> Suite:
    name = section.take("name", str)
    like = section.take("like", str, name)
    own = section.rest()
    if like not in shelf and (like != name or not own):
        raise section.wrong(
            "name", f"no suite {like!r} in suites_file; {nearest(like, list(shelf))}there are {list(shelf)}"
        )
    base = shelf.get(like, {})
    merged = Section({**base, **own}, *section.place)
    simulated = {**shared, **base.get("simulated", {}), **own.get("simulated", {})}
    merged.take("simulated", dict, {})
    judge = _suite_judge(merged.table("judge"), Path(section.place[0]))
    views = merged.take("views", dict, {})
    cases, recorded = merged.take("cases", str, None), merged.take("recorded", str, None)
    suite = Suite(
        name=name,
        cases=None if cases is None else data / cases,
        n=merged.take("n", int, None),
        problems=merged.take("problems", int, None),
        get=merged.take("get", str, ""),
        domain=merged.take("domain", str, None),
        profile=merged.take("profile", str, None),
        model=merged.take("model", str, None),
        base_url=merged.take("base_url", str, None),
        judge=judge,
        views=views,
        recorded=None if recorded is None else data / recorded,
        recorded_judge=merged.take("recorded_judge", str, None),
        shuffle=merged.take("shuffle", bool, default=False),
        simulated=simulated,
    )
    merged.finish()
    section.checked("simulated", lambda: recipe(simulated, suite.n))
    section.checked("views", lambda: with_views(GENERAL, views))
    if suite.cases is None and not recipe(simulated, suite.n).count:
        raise section.wrong("cases", "is missing: name a file of labelled cases, or simulated.problems")
    if suite.domain is not None:
        section.checked("domain", lambda: domain_named(str(suite.domain)))
    if suite.profile is not None:
        section.checked("profile", lambda: profile_named(str(suite.profile)))
    return suite


def _method(section: Section) -> Method:
    name = section.take("name", str)
    use = section.take("use", str, name)
    changes = {key: str(value) for key, value in section.take("set", dict, {}).items()}
    views = section.take("views", dict, {})
    simulated = section.take("simulated", dict, {})
    stated = section.take("stated", dict, None)
    output = section.take("output", str, "")
    section.finish()
    strategy = section.checked("use", lambda: make_strategy(use, changes))
    section.checked("views", lambda: with_views(GENERAL, views))
    section.checked("simulated", lambda: recipe(simulated))
    if stated is not None:
        section.checked("stated", lambda: (recipe(stated), with_profile(strategy, JudgeProfile(), use)))
    method = Method(
        name=name, use=use, strategy=strategy, views=views, simulated=simulated, stated=stated, output=output
    )
    try:
        made = method.output_name(0)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        known = ", ".join(["seed", *settings_of(strategy)])
        raise section.wrong("output", f"{error!r} in {output!r}: fields are {known}") from None
    if not _FILE_NAME.fullmatch(made):
        raise section.wrong("output", f"{made!r}: must be the name of a file: letters, digits and . _ -")
    return method


def _table(section: Section) -> TableSpec:
    table = TableSpec(
        name=section.take("name", str),
        title=section.take("title", str),
        down=section.take("down", str, "suites"),
        across=section.take("across", str, "methods"),
        metrics=section.texts("metrics", ["pass_at_1"]),
        suites=section.texts("suites", []),
        methods=section.texts("strategies", []),
        baseline=section.take("baseline", str, None),
        average=section.take("average", bool, default=False),
        published=section.take("published", dict, {}),
        readings=section.texts("readings", []),
    )
    section.finish()
    for key, value, allowed in (("down", table.down, DOWN), ("across", table.across, ACROSS)):
        if value not in allowed:
            raise section.wrong(key, f"{value!r}: must be one of {', '.join(allowed)}")
    for metric in table.metrics:
        if metric not in METRICS:
            known = nearest(metric, list(METRICS))
            raise section.wrong("metrics", f"no {metric!r}; {known}there are {', '.join(METRICS)}")
    return table


def _judge(section: Section, path: Path) -> RunConfig:
    """Which judge rules and how: settings of a run, but those that stand with a suite or strategy."""
    return RunConfig(**_judge_values(section, path))


def _suite_judge(section: Section, path: Path) -> dict[str, Any]:
    """What is set otherwise for a suite; whether its programs run is the same for the whole study."""
    return _judge_values(section, path, elsewhere=("model", "base_url", "hard_evidence", "sandbox"))


def _judge_values(section: Section, path: Path, elsewhere: tuple[str, ...] = ()) -> dict[str, Any]:
    among = [one for one in options().values() if one.name not in (*NOT_OF_THE_JUDGE, *elsewhere)]
    file, where = section.place
    values = read_values(section.rest(), where=f"{file}: {where.rstrip('.')}", among=among)
    prompts = values.get("prompts")
    return values if prompts is None else {**values, "prompts": str(path.parent / prompts)}


def _check_names(study: Study, section: Section) -> None:
    """Check that names are unique and that references exist."""
    named = {
        "suites": [suite.name for suite in study.suites],
        "strategies": [method.name for method in study.methods],
        "tables": [table.name for table in study.tables],
    }
    for kind, names in named.items():
        files = names if kind == "strategies" else [slug(name) for name in names]
        if not names or len(set(files)) < len(files):
            raise section.wrong(kind, "must be given, each under another name")
    outputs = [method.output_name(study.seeds[0]) for method in study.methods]
    if len(set(outputs)) < len(outputs):
        twice = next(name for name in outputs if outputs.count(name) > 1)
        raise section.wrong("strategies", f"two would write the file {twice}: give one another output")
    methods = named["strategies"]
    wanted = [("reference", [study.reference] if study.reference else [], methods)]
    for place, table in enumerate(study.tables):
        wanted.append((f"tables[{place}].suites", list(table.suites), named["suites"]))
        baseline = [table.baseline] if table.baseline else []
        wanted.append((f"tables[{place}].strategies", [*table.methods, *baseline], methods))
    for key, names, known in wanted:
        for name in names:
            if name not in known:
                raise section.wrong(key, f"no {name!r}; {nearest(name, known)}there are {', '.join(known)}")
