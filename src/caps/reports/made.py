"""Everything that makes a run, as plain data without the keys: what `run.json` holds."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from caps.assemble import Setup, templates_for
from caps.core.play import Strategy
from caps.core.settings import settings_of
from caps.costs.prices import Price
from caps.models.fleet_addresses import shown_address
from caps.reports.rundir import digests, versions


def made_of(
    setup: Setup,
    *,
    cases: str,
    name: str,
    strategy: Strategy,
    seed: int,
    limit: int | None,
    confidence: str,
    findings: Mapping[str, str],
    price: Price | None,
) -> dict[str, Any]:
    """What a run is made of; `findings` tells which finder looks into which domain."""
    partial = setup.endpoint_partial
    return {
        "cases": cases if cases == "-" or "://" in cases else str(Path(cases).resolve()),
        "strategy": {"name": name, **settings_of(strategy)},
        "seed": seed,
        "limit": limit,
        "model": setup.endpoint.model,
        "base_url": shown_address(setup.endpoint.base_url),
        "model_e1": None if partial is None else partial.model,
        "base_url_e1": None if partial is None else shown_address(partial.base_url),
        "judge": asdict(setup.judge) | {"confidence": confidence},
        "extra": dict(setup.extra),
        "profile": setup.profile,
        "views": dict(setup.views),
        "merge_found": setup.merge_found,
        "findings": dict(findings),
        "journal": None if setup.journal is None else str(setup.journal.resolve()),
        "prompts_folder": None if setup.prompts is None else str(setup.prompts),
        "prompt_version": setup.prompt_version,
        "prompts": digests(templates_for(setup)),
        "budget": {"case": asdict(setup.case_budget), "total": asdict(setup.total_budget)},
        "price": None if price is None else asdict(price),
        "versions": versions(),
    }
