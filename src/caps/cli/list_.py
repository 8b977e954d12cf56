"""`caps list`: what there is."""

from dataclasses import fields
from typing import Annotated, Any

import typer

from caps.building import make_strategy
from caps.cli.list_models import models
from caps.cli.output import JsonFlag, print_json, stdout
from caps.core.settings import allowed
from caps.registry import (
    DATASETS,
    METHODS,
    PRESETS,
    PROFILES,
    SIGNATURES,
    STRATEGIES,
    VIEWS,
    Registry,
    listing,
    resolve,
)
from caps.reports.console import table
from caps.sampling.methods import make_method, make_preset

app = typer.Typer(help="What there is: strategies, models, views, presets, …", no_args_is_help=True)


@app.callback()
def group() -> None:
    """List what there is."""


@app.command()
def strategies(
    name: Annotated[str | None, typer.Argument(help="Show the fields of this strategy.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Ways of choosing, with a line and a reference each; with a NAME, its fields."""
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
    if name is not None:
        _fields(name, make_method(name), as_json=as_json)
        return
    _table(METHODS, as_json=as_json)


@app.command()
def datasets(as_json: JsonFlag = False) -> None:
    """Published problems that `caps import --dataset` reads."""
    columns = ("dataset", "problems", "what they are", "dates", "source", "licence")
    rows = []
    for name, about, _ in listing(DATASETS):
        found = resolve(DATASETS, name)
        dates = str(getattr(found, "window", "")) if getattr(found, "dated", None) else ""
        told = (getattr(found, field, "") for field in ("source", "licence"))
        rows.append((name, str(getattr(found, "expected", "")), about, dates, *told))
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    stdout().print(table("", columns, rows, numbers_from=9))


app.command()(models)


def _table(registry: Registry, *, as_json: bool) -> None:
    rows = list(listing(registry))
    if as_json:
        print_json([dict(zip((registry.kind, "about", "reference"), row, strict=True)) for row in rows])
        return
    stdout().print(table("", (registry.kind, "what it does", "reference"), rows, numbers_from=9))


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
