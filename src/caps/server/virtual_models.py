"""Virtual models: a name of this server that stands for several generators, a judge and a strategy.

    [models.team]
    generators = ["small", "large"]
    judge = "large"

A generator is the name of a `[[generator]]` table, or of a model at the server's own address.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from caps.config import RunConfig
from caps.core.errors import SettingError
from caps.core.settings import nearest
from caps.models.http import Upstream
from caps.sampling.generators import GeneratorSource


class ModelTable(msgspec.Struct, frozen=True, kw_only=True):
    """The table of a virtual model; what it leaves out is as for other requests."""

    generators: list[str] = msgspec.field(default_factory=list)
    judge: str | None = None
    strategy: str | None = None
    n: int | str = "auto"
    max_n: int | None = None
    target: float | None = None


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


def virtual_configs(config: RunConfig) -> dict[str, RunConfig]:
    """The config of each virtual model; a `SettingError` names the table and the field that is wrong."""
    return {name: _config_of(name, table, config) for name, table in config.models.items()}


def _config_of(name: str, table: object, config: RunConfig) -> RunConfig:
    where = f"models.{name}"
    if not isinstance(table, Mapping):
        raise SettingError(f"{where}: must be a table, such as [models.{name}] with generators = [...]")
    known = ModelTable.__struct_fields__
    for one in table:
        if one not in known:
            raise SettingError(
                f"{where}: {one}: no such field; {nearest(str(one), list(known))}it has {', '.join(known)}"
            )
    try:
        read = msgspec.convert(dict(table), ModelTable)
    except msgspec.ValidationError as error:
        raise SettingError(f"{where}: {error}") from None
    if not read.generators:
        raise SettingError(f"{where}: generators: is empty; name at least one model")
    stated = {str(one.get("model")): one for one in config.generator}
    changes: dict[str, object] = {
        "generator": [stated.get(one, {"model": one}) for one in read.generators],
        "judge_model": read.judge,
        "strategy": read.strategy,
        "samples": read.n,
        "max_n": read.max_n,
        "target": read.target,
    }
    given = {key: value for key, value in changes.items() if value is not None}
    return replace(config.with_values(given, where=where), models={})
