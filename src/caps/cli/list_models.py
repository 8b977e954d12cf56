"""`caps list models`: which models can be reached from here."""

import asyncio
from collections.abc import Iterable
from typing import Any

from platformdirs import user_cache_path

from caps.cli.doctor import environment_places
from caps.cli.output import JsonFlag, print_json, say, stdout
from caps.core.text import number
from caps.models import weights
from caps.models.discovery import EMBEDDED, Discovered, local_places
from caps.reports.console import table


def models(as_json: JsonFlag = False) -> None:
    """What can be reached: the embedded model, endpoints of the environment, servers on the usual ports."""
    from caps.models.discovery import discover  # noqa: PLC0415  (aiohttp takes a while to load)

    named = environment_places()
    known = {place.base_url.rstrip("/").replace("localhost", "127.0.0.1") for place in named}
    places = [*named, *(place for place in local_places() if place.base_url not in known)]
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
        "problem": "" if cached else "fetched at first use, 93 MB; or now: caps doctor --fetch",
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
