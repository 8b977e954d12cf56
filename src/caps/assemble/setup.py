"""What a user may set, and where models are found."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from caps.costs.prices import Price
from caps.engines.batch_files import BatchSettings
from caps.engines.budget import Budget
from caps.engines.cluster import Cluster
from caps.judges.llm import JudgeSettings
from caps.models import weights
from caps.models.base import Tell, unheard
from caps.models.locate import locate
from caps.models.weights import Report
from caps.prompts.render import VERSION

ENGINES = ("local", "batch", "ray")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a judge is found: an address, the name of a model there, and a key that is never shown."""

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)


def find(
    model: str | None,
    base_url: str | None,
    api_key: str | None,
    *,
    cache: Path,
    report: Report | None = None,
) -> Endpoint:
    """The endpoint a user means; `embedded` is fetched into `cache` first if it must be."""
    address, name = locate(model, base_url, cache=cache, report=report)
    return Endpoint(address, name, None if address.startswith("file:") else api_key or None)


def reply_for(*places: Endpoint) -> str:
    """How judges are to reply if nobody says: the default weights are too small to speak freely."""
    return "tags" if all(where.model == weights.NAME for where in places) else "free"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Everything that makes a run; what a user may set, already checked; `tell` hears of its troubles."""

    endpoint: Endpoint
    endpoint_partial: Endpoint | None = None
    engine: str = ENGINES[0]
    batch: BatchSettings = field(default_factory=BatchSettings)
    cluster: Cluster = field(default_factory=Cluster)
    judge: JudgeSettings = field(default_factory=JudgeSettings)
    confidence: Literal["verbal", "logprobs", "auto"] = "verbal"
    extra: Mapping[str, object] = field(default_factory=dict)
    profile: str | None = None
    views: Mapping[str, str] = field(default_factory=dict)
    prompts: Path | None = None
    prompt_version: str = VERSION
    connections: int | Literal["auto"] = "auto"
    timeout: float = 600.0
    context: int | None = None
    threads: int | None = None
    journal: Path | None = None
    durable: bool = False
    price: Price | None = None
    hard_evidence: Literal["auto", "on", "off"] = "off"
    merge_found: bool = False
    sandbox: str = "auto"
    case_budget: Budget = field(default_factory=Budget)
    total_budget: Budget = field(default_factory=Budget)
    grace: float = 0.0
    tell: Tell = field(default=unheard, repr=False, compare=False)
