"""Endpoints: where the models of a run are, and how the run connects to them.

A key is sent only to the address it was given for.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from platformdirs import user_cache_path

from caps.config import Keys, RunConfig
from caps.models.base import ConnectOptions, HasConnections, Model, Notify, ignore
from caps.models.discovery import connect, context_of, locate
from caps.models.servers import join_addresses
from caps.models.weights import Report
from caps.registry import path_of_class

OWN_CONNECTIONS = 16  # concurrent calls of a judge or model object without a `connections` attribute
SURPLUS_CALLS = 2  # waiting calls with an automatic limit, which grows only if some wait


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a model, its name there, and a key that is never shown.

    An address may contain a password: use `shown_address` to display it.
    """

    base_url: str = field(repr=False)
    model: str
    api_key: str | None = field(default=None, repr=False)

    @property
    def is_file(self) -> bool:
        """Whether the model is a file of weights on this machine."""
        return self.base_url.startswith("file:")


class Endpoints(NamedTuple):
    """The endpoints of the generator and of a judge."""

    generator: Endpoint
    judge: Endpoint

    def stated_values(self) -> dict[str, str]:
        """The settings that name these endpoints."""
        generator, judge = self
        values = {"model": generator.model, "base_url": generator.base_url}
        if judge != generator:
            values |= {"judge_model": judge.model, "judge_base_url": judge.base_url}
        return values


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Functions called while a run is in progress; a copy in another process calls none.

    `warn` receives messages for the user, `fetching` the progress of a download of weights.
    """

    warn: Notify = ignore
    fetching: Report | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Callbacks, ()


@dataclass(frozen=True, slots=True)
class Connector:
    """Finds the endpoints of models and connects to them.

    A `model` object takes the place of all of them. `offline` finds endpoints by their names alone. With
    `any_model`, each request names its model.
    """

    model: Model | None = None
    offline: bool = False
    any_model: bool = False
    callbacks: Callbacks = Callbacks()

    def find(self, model: str | None, address: str, key: str | None) -> Endpoint:
        """The endpoint of a model; missing weights are downloaded."""
        named = model or not address or address.startswith("file:")
        if self.offline or self.model is not None or (self.any_model and not named):
            return Endpoint(address, model or ("" if self.model is None else path_of_class(self.model)), key)
        fetching = self.callbacks.fetching
        place, name = locate(model, address or None, cache=user_cache_path("caps"), report=fetching)
        return Endpoint(place, name, None if place.startswith("file:") else key or None)

    def connect(self, where: Endpoint, config: RunConfig) -> HasConnections:
        """Connect to the model at an endpoint, with the limits of the config; the caller closes it."""
        if self.model is not None:
            return self.model  # type: ignore[return-value]
        return connect(
            ConnectOptions(
                address=where.base_url,
                model=where.model,
                api_key=where.api_key,
                connections=config.max_connections,
                timeout=config.timeout,
                context=config.context_tokens,
                threads=config.threads,
                notify=self.callbacks.warn,
            )
        )


def find_endpoints(config: RunConfig, keys: Keys, connector: Connector) -> Endpoints:
    """The endpoints of the generator and of a judge, which may share one."""
    base, address = join_addresses(config.base_url), join_addresses(config.judge_base_url)
    generator = None
    if config.model or base or not (config.judge_model or address):
        generator = connector.find(config.model, base, keys.api_key)
    if generator is not None and not (config.judge_model or address or keys.judge_api_key):
        return Endpoints(generator, generator)
    beside = "" if generator is None or generator.is_file else generator.base_url
    generator_key = None if generator is None else generator.api_key
    key = keys.judge_api_key or (None if address and address != beside else generator_key or keys.api_key)
    judge = connector.find(config.judge_model or config.model, address or beside or base, key)
    return Endpoints(generator or judge, judge)


async def least_context(models: Mapping[Endpoint, Model]) -> int | None:
    """The fewest tokens of context that an endpoint reports; None if none of them does."""
    known = await asyncio.gather(*(context_of(model, where.model) for where, model in models.items()))
    return min((one for one in known if one is not None), default=None)


def call_capacity(models: Iterable[Model], *, auto: bool) -> Callable[[], int]:
    """A function that returns the number of concurrent asks: an ask may occupy a connection of each model.

    With `auto`, the limits of the models grow.
    """
    limits = [_call_limit(model) for model in models]
    surplus = SURPLUS_CALLS if auto else 0
    return lambda: max(limit() for limit in limits) + surplus


def _call_limit(model: Model) -> Callable[[], int]:
    """A function that returns the number of calls that may run or wait at a model."""
    return lambda: connections_of(model) + getattr(model, "surplus", 0)


def connections_of(answering: object) -> int:
    """The number of concurrent calls that a model or a judge object declares, or the usual one."""
    declared: int = getattr(answering, "connections", OWN_CONNECTIONS)
    return declared
