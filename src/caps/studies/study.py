"""Studies: suites x strategies x seeds and the tables they fill, read from TOML files."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from caps.config import RunConfig, options, read_values
from caps.config.tables import Place, Table, check_keys, read_settings, read_table
from caps.core.judge_profile import JudgeProfile
from caps.core.play import Strategy
from caps.core.settings import check_settings, nearest, setting, settings_of
from caps.evidence.domains import domain_named
from caps.evidence.profiles import GENERAL, profile_named, with_views
from caps.files import read_toml
from caps.judging.profiles import with_profile
from caps.judging.simulated import PRESETS, JudgeModel, judge_of
from caps.session.parts import make_strategy
from caps.studies.metrics import METRICS
from caps.studies.results import slug
from caps.studies.simulation import LabelledPool, PoolModel

SIMULATED = "simulated"


class Suite(Table, frozen=True):
    """Problems with candidates: a file of labelled cases, or pools the simulator makes up.

    `problems` is how many the paper counts, `get` the way to the file in words; `model` and `base_url`, or
    `recorded` verdicts and whose they are, stand in for the study's own judge, and `judge` for single
    settings of it: the room for a reply, say. `views` stand in for those of the profile. With `shuffle`,
    every seed puts the candidates into another order before a real or recorded judge sees them. `domain` is
    that of cases that state none. Suites of the paper name the `benchmark` and the `preset` of their model.
    """

    name: str
    cases: Path | None = None
    n: int | None = None
    problems: int | None = None
    get: str = ""
    benchmark: str = ""
    preset: str = ""
    domain: str | None = None
    profile: str | None = None
    model: str | None = None
    base_url: str | None = None
    judge: dict[str, Any] = msgspec.field(default_factory=dict)
    views: dict[str, str] = msgspec.field(default_factory=dict)
    recorded: Path | None = None
    recorded_judge: str | None = None
    shuffle: bool = False
    simulated: dict[str, Any] = msgspec.field(default_factory=dict)


class MethodTable(Table, frozen=True):
    """A strategy as a study file names it; `Method` is what becomes of it."""

    name: str
    use: str = ""
    set: dict[str, Any] = msgspec.field(default_factory=dict)
    views: dict[str, str] = msgspec.field(default_factory=dict)
    simulated: dict[str, Any] = msgspec.field(default_factory=dict)
    stated: dict[str, Any] | None = None
    output: str = ""


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


class TableSpec(Table, frozen=True):
    """A table: suites, methods or strata down, the same across, some metrics in each cell.

    `published` holds the paper's figures by row and column; `readings` say where they cannot be right.
    """

    name: str
    title: str
    down: Literal["suites", "methods", "disagreements"] = "suites"
    across: Literal["methods", "suites", "strata", "nothing"] = "methods"
    metrics: tuple[str, ...] = ("pass_at_1",)
    suites: tuple[str, ...] = ()
    methods: tuple[str, ...] = msgspec.field(default=(), name="strategies")
    baseline: str | None = None
    average: bool = False
    published: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
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


class StudyFile(Table, frozen=True):
    """A study as its file describes it; a suite or strategy may be its name alone."""

    title: str
    suites: list[Any]
    strategies: list[Any]
    tables: list[Any]
    about: str = ""
    suites_file: str | None = None
    seeds: tuple[int, ...] = (1234, 1235, 1236)
    reference: str | None = None
    judge: dict[str, Any] = msgspec.field(default_factory=dict)
    simulated: dict[str, Any] = msgspec.field(default_factory=dict)


class SuitesFile(Table, frozen=True):
    """A file of suites that several studies share."""

    suites: list[dict[str, Any]]


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

    def make(self, numbers: range) -> Iterator[LabelledPool]:
        """Pools by number; each depends only on its number and the seed."""
        for number in numbers:
            stratum = self._stratum(number)
            if stratum is None:
                yield self.pool.pool(number, self.seed)
            else:
                pool = replace(self.pool, solve_rate=stratum.solve_rate).pool(number, self.seed)
                yield replace(pool, difficulty=stratum.difficulty)

    def _stratum(self, number: int) -> Stratum | None:
        for stratum in self.strata:
            if number < stratum.problems:
                return stratum
            number -= stratum.problems
        return None


class RecipeTable(Table, frozen=True):
    """The settings of simulated suites that belong neither to the pools nor to the judge."""

    problems: Annotated[int, Meta(ge=0)] = 0
    seed: Annotated[int, Meta(ge=0)] = 1234
    preset: str | None = None
    strata: list[dict[str, Any]] = msgspec.field(default_factory=list)


def recipe(values: Mapping[str, Any], n: int | None = None, place: Place | None = None) -> Recipe:
    """Read flat settings; an unknown one, or one outside its limits, is a `SettingError` that names it."""
    place = place or Place("simulated")
    pool_names, judge_names = ([spec.name for spec in fields(kind)] for kind in (PoolModel, JudgeModel))
    check_keys(values, [*RecipeTable.__struct_fields__, *pool_names, *judge_names], place)
    pool = {name: value for name, value in values.items() if name in pool_names} | ({"n": n} if n else {})
    flaws = {name: value for name, value in values.items() if name in judge_names}
    rest = {name: value for name, value in values.items() if name not in (*pool_names, *judge_names)}
    table = read_table(rest, RecipeTable, place)
    if table.preset is not None and table.preset not in PRESETS:
        hint = nearest(table.preset, list(PRESETS))
        raise place.at("preset").error(f"no {table.preset!r}; {hint}there are {', '.join(PRESETS)}")
    return Recipe(
        problems=table.problems,
        seed=table.seed,
        pool=read_settings(pool, PoolModel, place),
        judge=place.check(lambda: _judge(table.preset, flaws)),
        strata=tuple(
            read_settings(row, Stratum, place.at("strata", number)) for number, row in enumerate(table.strata)
        ),
    )


def _judge(preset: str | None, flaws: Mapping[str, Any]) -> JudgeModel:
    if preset is not None:
        return replace(PRESETS[preset], **flaws)
    return judge_of(**flaws) if "accuracy" in flaws else JudgeModel(**flaws)


# From a TOML file to a `Study`; an unknown key is an error that names file and key.
#
# Paths in it are relative to the file, those of suites to another folder if one is given. A suite may be
# a name alone, looked up in `suites_file`, or be `like` such a one with some keys changed.


NOT_OF_THE_JUDGE = (
    "strategy", "settings", "seed", "calibrate", "profile", "views", "domain", "journal", "engine",
)  # fmt: skip
_FILE_NAME = re.compile(r"[\w.-]{1,100}")


def load_study(path: Path, data: Path | None = None) -> Study:
    """Read and check a study before anything runs; `data` is the folder of its suites' files."""
    place = Place(str(path))
    file = read_table(read_toml(path), StudyFile, place)
    shelf = _shelf(path, file.suites_file)
    folder = data or path.parent
    if not file.seeds:
        raise place.at("seeds").error("must be a list of whole numbers")
    study = Study(
        path=path,
        title=file.title,
        about=file.about,
        seeds=tuple(dict.fromkeys(file.seeds)),
        suites=tuple(
            _suite(*row, shelf, file.simulated, folder) for row in _rows(file.suites, place, "suites")
        ),
        methods=tuple(_method(*row) for row in _rows(file.strategies, place, "strategies")),
        tables=tuple(_table(*row) for row in _rows(file.tables, place, "tables")),
        reference=file.reference,
        judge=RunConfig(**_judge_values(file.judge, place.at("judge"))),
        simulated=file.simulated,
    )
    _check_names(study, place)
    return study


def comparison(cases: Path, names: Sequence[str], *, shuffle: bool = False) -> Study:
    """A study that compares strategies on one file of labelled cases, each with the first of them."""
    place = Place("--strategies")
    study = Study(
        path=cases,
        title=f"Strategies on {cases.name}",
        seeds=(1234,),
        suites=(Suite(cases.name, cases, shuffle=shuffle),),
        methods=tuple(_method({"name": name}, place) for name in names),
        tables=(
            TableSpec(
                name="strategies",
                title=f"Strategies on {cases.name}: differences are from {names[0]}",
                down="methods",
                across="nothing",
                metrics=("right", "missed", "recovery", "calls", "tokens_each", "gain", "mcnemar"),
                baseline=names[0],
                readings=(
                    "missed: a candidate is right, but another was chosen; right and missed are the ceiling",
                    "recovery: the share of the possible gain over a random candidate that was reached",
                    "p is McNemar's exact test",
                ),
            ),
        ),
    )
    _check_names(study, place)
    return study


def _rows(rows: list[Any], place: Place, name: str) -> Iterator[tuple[dict[str, Any], Place]]:
    """The tables of a list, each with its place; a text is a table with that name only."""
    for number, row in enumerate(rows):
        where = place.at(name, number)
        table = {"name": row} if isinstance(row, str) else row
        if not isinstance(table, dict):
            raise where.error(f"must be a table, not {row!r}")
        yield table, where


def _shelf(path: Path, name: str | None) -> dict[str, dict[str, Any]]:
    """The suites of another file, by name."""
    if name is None:
        return {}
    file = path.parent / name
    place = Place(str(file))
    listed = read_table(read_toml(file), SuitesFile, place)
    for number, row in enumerate(listed.suites):
        if not isinstance(row.get("name"), str):
            raise place.at("suites", number, "name").error("is missing; a text is wanted")
    return {row["name"]: row for row in listed.suites}


def _suite(
    row: dict[str, Any], place: Place, shelf: dict[str, dict[str, Any]], shared: dict[str, Any], data: Path
) -> Suite:
    """A suite: its own table over that of the suite it is `like`, by default of the same name."""
    name = row.get("name", "")
    like = row.get("like", name)
    own = {key: value for key, value in row.items() if key != "like"}
    if like not in shelf and (like != name or own.keys() == {"name"}):
        known = f"{nearest(like, list(shelf))}there are {list(shelf)}"
        raise place.at("name").error(f"no suite {like!r} in suites_file; {known}")
    base = shelf.get(like, {})
    suite = read_table({**base, **own}, Suite, place, path_of=lambda text: data / text)
    simulated = {**shared, **base.get("simulated", {}), **suite.simulated}
    # Whether programs run is the same for the whole study.
    elsewhere = ("model", "base_url", "hard_evidence", "sandbox")
    judge = _judge_values(suite.judge, place.at("judge"), elsewhere)
    made = recipe(simulated, suite.n, place.at("simulated"))
    place.at("views").check(lambda: with_views(GENERAL, suite.views))
    if suite.cases is None and not made.count:
        raise place.at("cases").error("is missing: name a file of labelled cases, or simulated.problems")
    if suite.domain is not None:
        place.at("domain").check(lambda: domain_named(str(suite.domain)))
    if suite.profile is not None:
        place.at("profile").check(lambda: profile_named(str(suite.profile)))
    return msgspec.structs.replace(suite, judge=judge, simulated=simulated)


def _method(row: dict[str, Any], place: Place) -> Method:
    table = read_table(row, MethodTable, place)
    use, changes = table.use or table.name, {key: str(value) for key, value in table.set.items()}
    strategy = place.at("use").check(lambda: make_strategy(use, changes))
    place.at("views").check(lambda: with_views(GENERAL, table.views))
    recipe(table.simulated, place=place.at("simulated"))
    stated = table.stated
    if stated is not None:
        recipe(stated, place=place.at("stated"))
        place.at("stated").check(lambda: with_profile(strategy, JudgeProfile(), use))
    method = Method(
        name=table.name, use=use, strategy=strategy, views=table.views, simulated=table.simulated,
        stated=stated, output=table.output,
    )  # fmt: skip
    try:
        file = method.output_name(0)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        known = ", ".join(["seed", *settings_of(strategy)])
        raise place.at("output").error(f"{error!r} in {table.output!r}: fields are {known}") from None
    if not _FILE_NAME.fullmatch(file):
        raise place.at("output").error(f"{file!r}: must be the name of a file: letters, digits and . _ -")
    return method


def _table(row: dict[str, Any], place: Place) -> TableSpec:
    table = read_table(row, TableSpec, place)
    for metric in table.metrics:
        if metric not in METRICS:
            known = nearest(metric, list(METRICS))
            raise place.at("metrics").error(f"no {metric!r}; {known}there are {', '.join(METRICS)}")
    return table


def _judge_values(values: dict[str, Any], place: Place, elsewhere: tuple[str, ...] = ()) -> dict[str, Any]:
    """Settings of runs, but those that stand with a suite or strategy, or `elsewhere`."""
    among = [option for option in options().values() if option.name not in (*NOT_OF_THE_JUDGE, *elsewhere)]
    checked = place.check(lambda: read_values(values, among=among))
    prompts = checked.get("prompts")
    return checked if prompts is None else {**checked, "prompts": str(Path(place.source).parent / prompts)}


def _check_names(study: Study, place: Place) -> None:
    """Check that names are unique and that references exist."""
    names = {
        "suites": [suite.name for suite in study.suites],
        "strategies": [method.name for method in study.methods],
        "tables": [table.name for table in study.tables],
    }
    for kind, listed in names.items():
        files = listed if kind == "strategies" else [slug(name) for name in listed]
        if not listed or len(set(files)) < len(files):
            raise place.at(kind).error("must be given, each under another name")
    outputs = [method.output_name(study.seeds[0]) for method in study.methods]
    if len(set(outputs)) < len(outputs):
        twice = next(name for name in outputs if outputs.count(name) > 1)
        raise place.at("strategies").error(f"two would write the file {twice}: give one another output")
    methods = names["strategies"]
    references = [(place.at("reference"), [study.reference], methods)]
    for number, table in enumerate(study.tables):
        where = place.at("tables", number)
        references.append((where.at("suites"), list(table.suites), names["suites"]))
        references.append((where.at("strategies"), [*table.methods, table.baseline], methods))
    for where, wanted, known in references:
        for name in wanted:
            if name is not None and name not in known:
                raise where.error(f"no {name!r}; {nearest(name, known)}there are {', '.join(known)}")
