"""From a TOML file to a `Study`; an unknown key is an error that names file and key.

Paths in it are relative to the file. A suite may be a name alone, looked up in `suites_file`, or be
`like` such a one with some keys changed.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from caps.building import make_strategy
from caps.config import RunConfig, options, read_values
from caps.core.judging import JudgeProfile
from caps.core.settings import nearest
from caps.evidence.profiles import profile_named, with_views
from caps.experiments.metrics import METRICS
from caps.experiments.recipes import recipe
from caps.experiments.results import slug
from caps.experiments.sections import Section
from caps.experiments.study import Method, Study, Suite, TableSpec
from caps.files import read_toml
from caps.judges.profiles import with_profile

DOWN = ("suites", "methods", "disagreements")
ACROSS = ("methods", "suites", "strata", "nothing")
DEFAULT_SEEDS = [1234, 1235, 1236]


def load_study(path: Path) -> Study:
    """Read a study and check all of it before anything runs."""
    section = Section(read_toml(path), str(path))
    shelf = _shelf(section, path)
    shared = section.take("simulated", dict, {})
    suites = tuple(_suite(one, shelf, shared, path) for one in section.tables("suites"))
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
    """Suites another file describes, by name."""
    name = section.take("suites_file", str, None)
    if name is None:
        return {}
    file = path.parent / name
    shelf = Section(read_toml(file), str(file))
    listed = {one.take("name", str): one.rest() for one in shelf.tables("suites")}
    shelf.finish()
    return listed


def _suite(section: Section, shelf: dict[str, dict[str, Any]], shared: dict[str, Any], path: Path) -> Suite:
    name = section.take("name", str)
    like = section.take("like", str, name)
    own = section.rest()
    if like not in shelf and (like != name or not own):
        raise section.wrong(
            "name", f"no suite {like!r} in suites_file; {nearest(like, list(shelf))}there are {list(shelf)}"
        )
    base = shelf.get(like, {})
    told = Section({**base, **own}, *section.place)
    simulated = {**shared, **base.get("simulated", {}), **own.get("simulated", {})}
    told.take("simulated", dict, {})
    cases = told.take("cases", str, None)
    suite = Suite(
        name=name,
        cases=None if cases is None else path.parent / cases,
        n=told.take("n", int, None),
        problems=told.take("problems", int, None),
        get=told.take("get", str, ""),
        profile=told.take("profile", str, None),
        model=told.take("model", str, None),
        base_url=told.take("base_url", str, None),
        simulated=simulated,
    )
    told.finish()
    section.checked("simulated", lambda: recipe(simulated, suite.n))
    if suite.cases is None and not recipe(simulated, suite.n).count:
        raise section.wrong("cases", "is missing: name a file of labelled cases, or simulated.problems")
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
    section.finish()
    strategy = section.checked("use", lambda: make_strategy(use, changes))
    section.checked("views", lambda: with_views(profile_named("general"), views))
    section.checked("simulated", lambda: recipe(simulated))
    if stated is not None:
        section.checked("stated", lambda: (recipe(stated), with_profile(strategy, JudgeProfile(), use)))
    return Method(name=name, use=use, strategy=strategy, views=views, simulated=simulated, stated=stated)


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
    elsewhere = ("strategy", "settings", "seed", "calibrate", "profile", "views", "journal", "engine")
    among = [one for one in options().values() if one.name not in elsewhere]
    file, where = section.place
    config = RunConfig(**read_values(section.rest(), where=f"{file}: {where.rstrip('.')}", among=among))
    return config if config.prompts is None else replace(config, prompts=str(path.parent / config.prompts))


def _check_names(study: Study, section: Section) -> None:
    """Names are unique, and what refers to a name finds it."""
    named = {
        "suites": [suite.name for suite in study.suites],
        "strategies": [method.name for method in study.methods],
        "tables": [table.name for table in study.tables],
    }
    for kind, names in named.items():
        files = names if kind == "strategies" else [slug(name) for name in names]
        if not names or len(set(files)) < len(files):
            raise section.wrong(kind, "must be given, each under another name")
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
