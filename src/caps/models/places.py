"""Where models may be served, and what was found there; `discovery` goes and looks."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

USUAL_PORTS = {"vLLM": 8000, "SGLang": 30000, "llama.cpp": 8080, "Ollama": 11434, "LM Studio": 1234}

State = Literal["serving", "silent", "refusing", "strange"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where models may be served, and who is expected there."""

    kind: str
    base_url: str = field(repr=False)  # which may hold a password
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Served:
    """A model by the name it is asked for, with its context where the server tells."""

    name: str
    context: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What a place answered: models, or in `problem` why there are none; the address without secrets."""

    kind: str
    base_url: str
    state: State
    models: tuple[Served, ...] = ()
    problem: str = ""


def local_places(ports: Iterable[tuple[str, int]] = tuple(USUAL_PORTS.items())) -> list[Place]:
    """Where servers listen on this machine if nobody told them otherwise."""
    return [Place(kind, f"http://127.0.0.1:{port}/v1") for kind, port in ports]
