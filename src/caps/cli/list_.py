"""`caps list`: what there is."""

from dataclasses import fields
from typing import Annotated, Any

import typer

from caps.assemble import make_strategy
from caps.cli.output import JsonFlag, print_json, stdout
from caps.core.settings import allowed
from caps.registry import STRATEGIES, listing
from caps.reports.console import table

app = typer.Typer(help="What there is: strategies.", no_args_is_help=True)


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
    rows = list(listing(STRATEGIES))
    if as_json:
        print_json([dict(zip(("strategy", "about", "reference"), row, strict=True)) for row in rows])
        return
    stdout().print(table("", ("strategy", "what it does", "reference"), rows, numbers_from=9))


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
