"""`caps list`: what there is."""

from dataclasses import fields
from typing import Annotated, Any

import typer

from caps.assemble import make_strategy
from caps.cli.list_models import models
from caps.cli.output import JsonFlag, print_json, stdout
from caps.core.settings import allowed
from caps.registry import PROFILES, SIGNATURES, STRATEGIES, VIEWS, Registry, listing
from caps.reports.console import table

app = typer.Typer(
    help="What there is: strategies, views, signatures, profiles, models.", no_args_is_help=True
)


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
        _fields(name, as_json=as_json)
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


app.command()(models)


def _table(registry: Registry, *, as_json: bool) -> None:
    rows = list(listing(registry))
    if as_json:
        print_json([dict(zip((registry.kind, "about", "reference"), row, strict=True)) for row in rows])
        return
    stdout().print(table("", (registry.kind, "what it does", "reference"), rows, numbers_from=9))


def _fields(name: str, *, as_json: bool) -> None:
    strategy: Any = make_strategy(name)
    rows = [
        (spec.name, str(getattr(strategy, spec.name)), allowed(spec), spec.metadata.get("about", ""))
        for spec in fields(strategy)
    ]
    columns = ("field", "value", "takes", "meaning")
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    stdout().print(table(f"{name}: change a field with --set field=value", columns, rows, numbers_from=9))
