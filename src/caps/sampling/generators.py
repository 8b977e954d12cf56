"""Generators: the models that write the answers of one pool, as `[[generator]]` tables state them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from msgspec import Meta

from caps.config import Keys, RunConfig
from caps.config.tables import Place, Table, read_table
from caps.costs.prices import Price, listed_price
from caps.models.endpoints import Connector, Endpoint
from caps.models.servers import join_addresses
from caps.sampling.base import Preset
from caps.sampling.methods import make_preset, resolve_preset

QUALITY = 0.6
EXPECTED = 4.0  # samples that the expected quality of a generator counts for
REMEMBERED = 1000  # samples; beyond, earlier ones count for less, so that a model that changes is noticed


@dataclass(slots=True)
class Quality:
    """The share of a model's samples that is right: what was expected, and what agreement showed since."""

    expected: float = QUALITY
    right: float = 0.0
    seen: float = 0.0

    @property
    def mean(self) -> float:
        """The share as it is known now."""
        return (EXPECTED * self.expected + self.right) / (EXPECTED + self.seen)

    def add(self, chance: float) -> None:
        """Count a sample that is right with this chance."""
        kept = 1.0 if self.seen < REMEMBERED else 1 - 1 / REMEMBERED
        self.right, self.seen = kept * self.right + chance, kept * self.seen + 1


class GeneratorTable(Table, frozen=True):
    """One table: a model, its address and the variable of its key, its price, its preset.

    `quality` is the share of its answers that is expected to be right.
    """

    model: str
    base_url: str | list[str] = ""
    api_key_env: str = ""
    price_input: float | None = None
    price_output: float | None = None
    price_cached: float | None = None
    preset: str = "default"
    quality: Annotated[float, Meta(gt=0, lt=1)] = QUALITY

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of its servers; empty if they are those of the run."""
        addresses = [self.base_url] if isinstance(self.base_url, str) else self.base_url
        return tuple(one for one in addresses if one)

    @property
    def price(self) -> Price | None:
        """Its price, if stated."""
        return Price.stated(self)


@dataclass(frozen=True, slots=True)
class GeneratorSource:
    """A model that writes answers: where it is, its sampling settings, price and expected quality."""

    where: Endpoint
    preset: Preset
    price: Price | None
    quality: float = QUALITY


def read_sources(
    config: RunConfig, keys: Keys, connector: Connector, changes: Mapping[str, str]
) -> tuple[GeneratorSource, ...]:
    """The models of the tables of a config; `changes` replace settings of their presets.

    They get the key of the run only at the address of the run.
    """
    sources = []
    for place, table in enumerate(read_generators(config.generator)):
        address = join_addresses(table.addresses)
        key = (keys.generators[place] if place < len(keys.generators) else None) or (
            None if address else keys.api_key
        )
        where = connector.find(table.model, address or join_addresses(config.base_url), key)
        name = resolve_preset(table.preset if table.preset != "default" else config.preset, table.model)
        price = table.price or Price.stated(config) or listed_price(where.model, where.base_url)
        sources.append(GeneratorSource(where, make_preset(name, changes), price, table.quality))
    return tuple(sources)


def with_first_generator(config: RunConfig, keys: Keys) -> tuple[RunConfig, Keys]:
    """The config and keys; the first generator is the model of the run if no other is named."""
    tables = read_generators(config.generator)
    if not tables or config.model:
        return config, keys
    first = tables[0]
    if not first.addresses:
        return replace(config, model=first.model), keys
    if config.base_url:
        return config, keys
    key = keys.generators[0] if keys.generators else None
    return replace(config, model=first.model, base_url=first.addresses), replace(keys, api_key=key)


def read_generators(tables: Sequence[Mapping[str, object]]) -> tuple[GeneratorTable, ...]:
    """Check the tables; a `SettingError` names the table and the field that is wrong."""
    return tuple(_read(place, table) for place, table in enumerate(tables, 1))


def _read(number: int, table: Mapping[str, object]) -> GeneratorTable:
    place = Place(f"generator {number}")
    generator = read_table(table, GeneratorTable, place)
    if not generator.model.strip():
        raise place.at("model").error("is empty; give the name of a model")
    if (generator.price_input is None) != (generator.price_output is None):
        raise place.error("a price needs both price_input and price_output")
    place.check(lambda: generator.price)
    return generator
