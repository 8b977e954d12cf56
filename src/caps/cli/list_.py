"""`caps list`: strategies, models, views and other things with names."""

import asyncio
from collections.abc import Iterable
from dataclasses import fields
from typing import Annotated, Any

import typer
from platformdirs import user_cache_path

from caps.cli.doctor import environment_places
from caps.cli.options import Command, JsonFlag, allow_named, completion
from caps.cli.output import print_json, say, stdout
from caps.core.errors import SettingError
from caps.core.settings import allowed
from caps.core.text import number
from caps.models import weights
from caps.models.discovery import EMBEDDED, Discovered, local_endpoints
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

app = typer.Typer(help="List strategies, judges, models, domains and other parts.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """List strategies, judges, models, domains and other parts."""


@app.command(cls=Command)
def strategies(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Show the fields of this strategy.",
            autocompletion=completion(STRATEGIES.table),
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the strategies; with a NAME, the fields of that strategy."""
    allow_named(name)
    if name is not None:
        _fields(name, make_strategy(name), as_json=as_json)
        return
    _table(STRATEGIES, as_json=as_json)


@app.command(cls=Command)
def views(as_json: JsonFlag = False) -> None:
    """List the views: what a judge may see of a candidate, or of two together."""
    _table(VIEWS, PAIR_VIEWS, as_json=as_json)


@app.command(cls=Command)
def signatures(as_json: JsonFlag = False) -> None:
    """List the signatures, which decide whether two candidates give the same answer."""
    _table(SIGNATURES, as_json=as_json)


@app.command(cls=Command)
def profiles(as_json: JsonFlag = False) -> None:
    """List the profiles, each a signature and its views."""
    _table(PROFILES, as_json=as_json)


@app.command(cls=Command)
def presets(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Show the fields of this preset.",
            autocompletion=completion(PRESETS.table),
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the presets of sampling settings; with a NAME, the fields of that preset."""
    allow_named(name)
    if name is not None:
        _fields(name, make_preset(name), as_json=as_json)
        return
    _table(PRESETS, as_json=as_json)


@app.command(cls=Command)
def methods(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Show the fields of this method.",
            autocompletion=completion(METHODS.table),
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the methods of generating candidates; with a NAME, the fields of that method."""
    allow_named(name)
    if name is not None:
        _fields(name, make_method(name), as_json=as_json)
        return
    _table(METHODS, as_json=as_json)


@app.command(cls=Command)
def datasets(as_json: JsonFlag = False) -> None:
    """List the published problems that caps import --dataset reads."""
    columns = ("dataset", "problems", "what they are", "dates", "source", "licence", "package")
    rows = []
    for name, about, _, package in listing(DATASETS):
        try:
            found = resolve(DATASETS, name)
        except SettingError:  # as its line says
            found = None
        dates = str(getattr(found, "window", "")) if getattr(found, "dated", None) else ""
        origin = (str(getattr(found, field, "")) for field in ("source", "licence"))
        rows.append((name, str(getattr(found, "expected", "")), about, dates, *origin, package))
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    stdout().print(table("", columns, rows, numbers_from=9))


@app.command(cls=Command)
def judges(as_json: JsonFlag = False) -> None:
    """List the judges that --judge takes."""
    _table(JUDGES, as_json=as_json)


@app.command(cls=Command)
def domains(as_json: JsonFlag = False) -> None:
    """List the domains, the kinds of tasks that a case may state."""
    _table(DOMAINS, as_json=as_json)


@app.command(cls=Command)
def graders(as_json: JsonFlag = False) -> None:
    """List the graders that caps grade --grader takes."""
    _table(GRADERS, as_json=as_json)


@app.command(cls=Command)
def backends(as_json: JsonFlag = False) -> None:
    """List the model backends, the kinds of addresses that --base-url takes."""
    _table(MODELS, as_json=as_json)


@app.command(cls=Command)
def plugins(as_json: JsonFlag = False) -> None:
    """List everything that installed packages add, with the package it comes from."""
    columns = ("kind", "name", "what it does", "package", "code")
    rows = [
        (registry.kind, one.name, one.about, one.package, one.reference)
        for registry in REGISTRIES
        for one in listing(registry)
        if one.name not in registry.table
    ]
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        stdout().print(table("", columns, rows, numbers_from=9))
    else:
        say("no installed package adds anything; see docs/howto/extend.md")


def _table(registry: Registry, *others: Registry, as_json: bool) -> None:
    """Print the entries of a registry, and those of others after them."""
    rows = [one for each in (registry, *others) for one in listing(each)]
    built_in = {name for each in (registry, *others) for name in each.table}
    if as_json:
        print_json(
            [
                {registry.kind: one.name, "about": one.about, "reference": one.reference}
                | ({} if one.name in built_in else {"package": one.package})
                for one in rows
            ]
        )
        return
    cells = [
        (
            with_default(one.name),
            one.about,
            one.reference if one.name in built_in else f"{one.package}: {one.reference}",
        )
        for one in rows
    ]
    stdout().print(table("", (registry.kind, "what it does", "reference"), cells, numbers_from=9))


def _fields(name: str, owner: Any, *, as_json: bool) -> None:
    rows = [
        (spec.name, str(getattr(owner, spec.name)), allowed(spec), spec.metadata.get("about", ""))
        for spec in fields(owner)
    ]
    columns = ("field", "value", "takes", "meaning")
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    stdout().print(table(f"{name}: change a field with --set field=value", columns, rows, numbers_from=9))


@app.command(cls=Command)
def models(as_json: JsonFlag = False) -> None:
    """List the models that can be used: embedded, on servers that you named, and on the usual local ports."""
    from caps.models.discovery import discover  # noqa: PLC0415  (aiohttp takes a while to load)

    named = environment_places()
    known = {place.base_url.rstrip("/").replace("localhost", "127.0.0.1") for place in named}
    places = [*named, *(place for place in local_endpoints() if place.base_url not in known)]
    found = asyncio.run(discover(places))
    shown = [one for place, one in zip(places, found, strict=True) if place in named or one.state != "silent"]
    rows = [_embedded(), *map(_row, shown)]
    if as_json:
        print_json(rows)
        return
    columns = ("model", "where", "context", "use it with")
    stdout().print(table("", columns, list(_cells(rows)), numbers_from=9))
    for row in rows:
        if row["problem"]:
            say(f"{row['where']}: {row['problem']}")


def _embedded() -> dict[str, Any]:
    cached = weights.cached_path(user_cache_path("caps")).is_file()
    return {
        "where": EMBEDDED,
        "base_url": None,
        "state": "cached" if cached else "not fetched",
        "models": [{"name": weights.NAME, "context": weights.CONTEXT}],
        "problem": "" if cached else "downloaded at first use (93 MB), or now with caps doctor --fetch",
    }


def _row(found: Discovered) -> dict[str, Any]:
    return {
        "where": f"{found.kind}, {found.base_url}",
        "base_url": found.base_url,
        "state": found.state,
        "models": [{"name": one.name, "context": one.context} for one in found.models],
        "problem": found.problem,
    }


def _cells(rows: Iterable[dict[str, Any]]) -> Iterable[tuple[str, ...]]:
    for row in rows:
        for one in row["models"]:
            words = f"--model {one['name']} --base-url {row['base_url']}"
            use = words if row["base_url"] else f"--model {EMBEDDED}"
            yield one["name"], f"{row['where']} ({row['state']})", number(one["context"], 0), use
