"""From what a user says to a model: an address and a name, and the backend that the address asks for."""

import re
from pathlib import Path
from typing import cast

from caps.core.errors import SettingError
from caps.models.base import Connected, Wiring
from caps.models.fleet_addresses import is_fleet
from caps.models.gguf import path_of, weights_name
from caps.models.weights import Report, default_weights
from caps.registry import MODELS, listing, resolve

EMBEDDED = "embedded"
_DOTTED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def locate(
    model: str | None, base_url: str | None, *, cache: Path, report: Report | None = None
) -> tuple[str, str]:
    """Address and name of the model meant; the default weights are fetched into `cache` if they must be.

    `embedded` means those, a path to a GGUF file (with no address) that file. A model inside this process is
    named by its weights, not by its path: the journal's keys are made of that name.
    """
    if EMBEDDED in (model, base_url):
        path = default_weights(cache, report)
        return path.as_uri(), weights_name(path)
    if base_url and base_url.startswith("file:"):
        return base_url, weights_name(path_of(base_url))
    if not base_url and model and model.lower().endswith(".gguf"):
        path = Path(model).expanduser().resolve()
        return path.as_uri(), weights_name(path)
    if not base_url:
        raise SettingError(
            "no endpoint: give --base-url http://localhost:8000/v1, or set CAPS_BASE_URL; or --model "
            "embedded for the small model that runs inside caps"
        )
    if not model:
        raise SettingError("no model: give --model NAME, or set CAPS_MODEL")
    return base_url, model


def connect(wiring: Wiring) -> Connected:
    """The model at an address, made by the backend of its scheme, or by one that is named in its place."""
    return cast(Connected, resolve(MODELS, _backend(wiring.address))(wiring))


def _backend(address: str) -> str:
    if is_fleet(address):
        return "fleet"
    scheme, colon, _ = address.partition("://")
    if colon:
        return scheme if scheme in MODELS.aliases else "http"  # which says what an address looks like
    named = _DOTTED.fullmatch(address) or any(address == name for name, *_ in listing(MODELS))
    return address if named else "http"
