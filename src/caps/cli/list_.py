"""`caps list`: what there is."""

from dataclasses import fields
from typing import Annotated, Any

import typer

from caps.building import make_strategy
from caps.cli.config_options import allow_named
from caps.cli.list_models import models
from caps.cli.output import JsonFlag, print_json, say, stdout
from caps.core.errors import SettingError
from caps.core.settings import allowed
from caps.registry import (
    DATASETS,
    DOMAINS,
    GRADERS,
    JUDGES,
    METHODS,
    MODELS,
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
from caps.reports.console import table
from caps.sampling.methods import make_method, make_preset

app = typer.Typer(help="What there is: strategies, judges, models, domains, …", no_args_is_help=True)


@app.callback()
def group() -> None:
    """List what there is."""


@app.command()
def strategies(
    name: Annotated[str | None, typer.Argument(help="Show the fields of this strategy.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Ways of choosing, with a line and a reference each; with a NAME, its fields."""
    allow_named(name)
    if name is not None:
        _fields(name, make_strategy(name), as_json=as_json)
        return
    _table(STRATEGIES, as_json=as_json)


@app.command()
def views(as_json: JsonFlag = False) -> None:
    """What a judge may be shown of a candidate."""
    _table(VIEWS, as_json=as_json)


@app.command()
def signatures(as_json: JsonFlag = False) -> None:
    """What makes two candidates the same answer."""
    _table(SIGNATURES, as_json=as_json)


@app.command()
def profiles(as_json: JsonFlag = False) -> None:
    """Which signature and views go together."""
    _table(PROFILES, as_json=as_json)


@app.command()
def presets(
    name: Annotated[str | None, typer.Argument(help="Show the fields of this preset.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """How candidates are drawn from a model; with a NAME, its fields."""
    allow_named(name)
    if name is not None:
        _fields(name, make_preset(name), as_json=as_json)
        return
    _table(PRESETS, as_json=as_json)


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Show the fields of this method.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Ways of coming by candidates; with a NAME, its fields."""
    allow_named(name)
    if name is not None:
        _fields(name, make_method(name), as_json=as_json)
        return
    _table(METHODS, as_json=as_json)


@app.command()
def datasets(as_json: JsonFlag = False) -> None:
    """Published problems that `caps import --dataset` reads."""
    columns = ("dataset", "problems", "what they are", "dates", "source", "licence", "package")
    rows = []
    for name, about, _, package in listing(DATASETS):
        try:
            found = resolve(DATASETS, name)
        except SettingError:  # as its line says
            found = None
        dates = str(getattr(found, "window", "")) if getattr(found, "dated", None) else ""
        told = (str(getattr(found, field, "")) for field in ("source", "licence"))
        rows.append((name, str(getattr(found, "expected", "")), about, dates, *told, package))
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    stdout().print(table("", columns, rows, numbers_from=9))


@app.command()
def judges(as_json: JsonFlag = False) -> None:
    """Who may judge, for --judge."""
    _table(JUDGES, as_json=as_json)


@app.command()
def domains(as_json: JsonFlag = False) -> None:
    """Kinds of tasks: what a case may state as its domain."""
    _table(DOMAINS, as_json=as_json)


@app.command()
def graders(as_json: JsonFlag = False) -> None:
    """What tells right from wrong, for caps grade --grader."""
    _table(GRADERS, as_json=as_json)


@app.command()
def backends(as_json: JsonFlag = False) -> None:
    """What completes prompts: the kinds of addresses that --base-url takes."""
    _table(MODELS, as_json=as_json)


@app.command()
def plugins(as_json: JsonFlag = False) -> None:
    """Everything that installed packages add, with the package it comes from."""
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


app.command()(models)


def _table(registry: Registry, *, as_json: bool) -> None:
    rows = list(listing(registry))
    if as_json:
        print_json(
            [
                {registry.kind: one.name, "about": one.about, "reference": one.reference}
                | ({} if one.name in registry.table else {"package": one.package})
                for one in rows
            ]
        )
        return
    cells = [
        (
            one.name,
            one.about,
            one.reference if one.name in registry.table else f"{one.package}: {one.reference}",
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
