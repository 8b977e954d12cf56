"""Virtual models: a name of this server that stands for several generators, a judge and a strategy.

    [models.team]
    generators = ["small", "large"]
    judge = "large"

A generator is the name of a `[[generator]]` table, or of a model at the server's own address.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from msgspec import Meta

from caps.config import RunConfig
from caps.config.tables import Place, Table, read_table
from caps.models.servers import Upstream
from caps.sampling.generators import GeneratorSource


class ModelTable(Table, frozen=True):
    """The table of a virtual model; what it leaves out is as for other requests."""

    generators: Annotated[list[str], Meta(min_length=1, description="a list of at least one model")]
    judge: str | None = None
    strategy: str | None = None
    n: int | Literal["auto"] = "auto"
    max_n: Annotated[int, Meta(ge=1)] | None = None
    target: Annotated[float, Meta(ge=0, le=1)] | None = None


@dataclass(frozen=True, slots=True)
class VirtualModel:
    """A virtual model: its config, and its generators with their connections."""

    name: str
    config: RunConfig
    generators: Sequence["ServedGenerator"] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class ServedGenerator:
    """A model that writes answers, with the connection to its server."""

    source: GeneratorSource
    upstream: Upstream


def virtual_configs(config: RunConfig, file: str = "") -> dict[str, RunConfig]:
    """The config of each virtual model; a `SettingError` names the file, the table and the wrong field."""
    return {name: _config_of(name, table, config, file) for name, table in config.models.items()}


def _config_of(name: str, table: object, config: RunConfig, file: str) -> RunConfig:
    read = read_table(table, ModelTable, Place(file, ("models", name)))
    tables = {str(generator.get("model")): generator for generator in config.generator}
    changes: dict[str, object] = {
        "generator": [tables.get(model, {"model": model}) for model in read.generators],
        "judge_model": read.judge,
        "strategy": read.strategy,
        "samples": read.n,
        "max_n": read.max_n,
        "target": read.target,
    }
    values = {key: value for key, value in changes.items() if value is not None}
    return replace(config.with_values(values, where=f"models.{name}"), models={})
