"""`caps list`: strategies, models, settings and other things with names."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

import typer
from platformdirs import user_cache_path

from caps.cli.doctor import environment_places
from caps.cli.options import JsonFlag, allow_named
from caps.cli.output import print_json, say, stdout
from caps.config import options
from caps.core.errors import SettingError
from caps.core.settings import allowed, nearest
from caps.core.text import number
from caps.models import weights
from caps.models.endpoints import EMBEDDED, Discovered, local_endpoints
from caps.registry import (
    DATASETS,
    DOMAINS,
    GRADERS,
    JUDGES,
    METHODS,
    MODELS,
    PAIR_VIEWS,
    PRESETS,
    PROFILES,
    REGISTRIES,
    SIGNATURES,
    STRATEGIES,
    VIEWS,
    Registry,
    listing,
    resolve,
)
from caps.reports.console import table, with_default
from caps.sampling.methods import make_method, make_preset
from caps.session.parts import make_strategy

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Kind:
    """Something that can be listed: what it is, its rows, and what shows the fields of one by its name."""

    about: str
    rows: Callable[[], Rows]
    make: Callable[[str], object] | None = None
    names: Mapping[str, object] | None = None


def _entries(*registries: Registry) -> Callable[[], Rows]:
    """The entries of some registries; those of installed packages name their package."""

    def rows() -> Rows:
        built_in = {name for registry in registries for name in registry.table}
        return [
            {registries[0].kind: entry.name, "about": entry.about, "reference": entry.reference}
            | ({} if entry.name in built_in else {"package": entry.package})
            for registry in registries
            for entry in listing(registry)
        ]

    return rows


def _datasets() -> Rows:
    rows = []
    for entry in listing(DATASETS):
        try:
            dataset = resolve(DATASETS, entry.name)
        except SettingError:  # as its line says
            dataset = None
        about = {
            name: str(getattr(dataset, name, "")) for name in ("expected", "window", "source", "licence")
        }
        rows.append(
            {
                "dataset": entry.name,
                "problems": about["expected"],
                "about": entry.about,
                "dates": about["window"] if getattr(dataset, "dated", None) else "",
                "source": about["source"],
                "licence": about["licence"],
                "package": entry.package,
            }
        )
    return rows


def _plugins() -> Rows:
    return [
        {
            "kind": registry.kind,
            "name": entry.name,
            "about": entry.about,
            "package": entry.package,
            "reference": entry.reference,
        }
        for registry in REGISTRIES
        for entry in listing(registry)
        if entry.name not in registry.table
    ]


def _settings() -> Rows:
    """The settings of a run, and where each can be set."""
    return [
        {
            "setting": setting.name,
            "default": "" if setting.default in (None, (), {}) else str(setting.default),
            "option": "" if setting.advanced else setting.flags[0],
            "variable": setting.env[0] if setting.env else "",
            "about": setting.help,
        }
        for setting in options().values()
    ]


def _models() -> Rows:
    """The embedded model, those of servers that the environment names, and those on the usual local ports."""
    from caps.models.endpoints import discover  # noqa: PLC0415  (aiohttp takes a while to load)

    named = environment_places()
    addresses = {place.base_url.rstrip("/").replace("localhost", "127.0.0.1") for place in named}
    places = [*named, *(place for place in local_endpoints() if place.base_url not in addresses)]
    answers = zip(places, asyncio.run(discover(places)), strict=True)
    return [
        _embedded(),
        *(_server(server) for place, server in answers if place in named or server.state != "silent"),
    ]


def _embedded() -> dict[str, Any]:
    cached = weights.cached_path(user_cache_path("caps")).is_file()
    return {
        "where": EMBEDDED,
        "base_url": None,
        "state": "cached" if cached else "not fetched",
        "models": [{"name": weights.NAME, "context": weights.CONTEXT}],
        "problem": "" if cached else "downloaded at first use (93 MB), or now with caps doctor --fetch",
    }


def _server(server: Discovered) -> dict[str, Any]:
    return {
        "where": f"{server.kind}, {server.base_url}",
        "base_url": server.base_url,
        "state": server.state,
        "models": [{"name": model.name, "context": model.context} for model in server.models],
        "problem": server.problem,
    }


KINDS = {
    "strategies": Kind(
        "methods that choose the winner", _entries(STRATEGIES), make_strategy, STRATEGIES.table
    ),
    "models": Kind("models that can be used: embedded, and of servers", _models),
    "judges": Kind("what --judge takes", _entries(JUDGES)),
    "domains": Kind("kinds of tasks that a case may state", _entries(DOMAINS)),
    "views": Kind("what a judge may see of a candidate, or of two together", _entries(VIEWS, PAIR_VIEWS)),
    "signatures": Kind("what decides whether two candidates give the same answer", _entries(SIGNATURES)),
    "profiles": Kind("a signature and its views", _entries(PROFILES)),
    "presets": Kind(
        "sampling settings of models that write answers", _entries(PRESETS), make_preset, PRESETS.table
    ),
    "methods": Kind("how candidates are generated", _entries(METHODS), make_method, METHODS.table),
    "datasets": Kind("published problems that caps import --dataset reads", _datasets),
    "graders": Kind("what caps grade --grader takes", _entries(GRADERS)),
    "backends": Kind("kinds of addresses that --base-url takes", _entries(MODELS)),
    "plugins": Kind("what installed packages add", _plugins),
    "settings": Kind("every setting of a run, as an option, a variable and a key of a file", _settings),
}


def _complete_kind(incomplete: str) -> list[str]:
    return [name for name in KINDS if name.startswith(incomplete)]


def _complete_name(ctx: typer.Context, incomplete: str) -> list[str]:
    kind = KINDS.get(ctx.params.get("kind") or "")
    return [name for name in (kind and kind.names) or () if name.startswith(incomplete)]


KindName = Annotated[
    str | None,
    typer.Argument(
        metavar="[KIND]", help=f"What to list: {', '.join(KINDS)}.", autocompletion=_complete_kind
    ),
]
Name = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        help="Show the fields of this strategy, preset or method.",
        autocompletion=_complete_name,
    ),
]


def list_(kind: KindName = None, name: Name = None, as_json: JsonFlag = False) -> None:
    """List strategies, judges, models, settings and other parts.

    Without KIND, the kinds themselves are listed.
    """
    if kind is None:
        _print([{"kind": name, "about": kind.about} for name, kind in KINDS.items()], as_json=as_json)
        return
    if kind not in KINDS:
        raise SettingError(f"caps list {kind}: {nearest(kind, list(KINDS))}kinds are {', '.join(KINDS)}")
    if name is not None:
        _print_fields(kind, name, as_json=as_json)
        return
    rows = KINDS[kind].rows()
    if kind == "plugins" and not rows and not as_json:
        say("no installed package adds anything; see docs/howto/extend.md")
    elif kind == "strategies" and not as_json:
        _print([{**row, "strategy": with_default(row["strategy"])} for row in rows], as_json=False)
    elif kind == "models" and not as_json:
        _print(list(_model_cells(rows)), as_json=False)
        for row in rows:
            if row["problem"]:
                say(f"{row['where']}: {row['problem']}")
    else:
        _print(rows, as_json=as_json)


def _print(rows: Rows, *, as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    columns = list(dict.fromkeys(column for row in rows for column in row))
    cells = [[str(row.get(column, "")) for column in columns] for row in rows]
    headings = ["what it does" if column == "about" else column for column in columns]
    stdout().print(table("", headings, cells, numbers_from=len(columns)))


def _print_fields(kind: str, name: str, *, as_json: bool) -> None:
    """Print the fields of a strategy, a preset or a method."""
    make = KINDS[kind].make
    if make is None:
        with_fields = ", ".join(kind for kind in KINDS if KINDS[kind].make is not None)
        raise SettingError(f"caps list {kind} {name}: only {with_fields} have fields; leave out {name}")
    allow_named(name)
    owner: Any = make(name)
    rows = [
        {
            "field": spec.name,
            "value": str(getattr(owner, spec.name)),
            "takes": allowed(spec),
            "meaning": spec.metadata.get("about", ""),
        }
        for spec in fields(owner)
    ]
    _print(rows, as_json=as_json)
    if not as_json:
        say(f"change a field of {name} with --set field=value")


def _model_cells(rows: Rows) -> Iterator[dict[str, str]]:
    for row in rows:
        for model in row["models"]:
            words = f"--model {model['name']} --base-url {row['base_url']}"
            yield {
                "model": model["name"],
                "where": f"{row['where']} ({row['state']})",
                "context": number(model["context"], 0),
                "use it with": words if row["base_url"] else f"--model {EMBEDDED}",
            }
