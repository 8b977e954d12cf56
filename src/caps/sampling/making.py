"""Names and words to presets and methods."""

from collections.abc import Mapping
from typing import cast

from caps.models.locate import EMBEDDED
from caps.registry import METHODS, PRESETS, build
from caps.sampling.base import Method
from caps.sampling.presets import Preset


def make_method(name: str, changes: Mapping[str, str] | None = None) -> Method:
    """Build a method by name, with some of its fields changed."""
    return cast(Method, build(METHODS, name, "sample", changes))


def make_preset(name: str, changes: Mapping[str, str] | None = None) -> Preset:
    """Build a preset by name, with some of its fields changed."""
    return cast(Preset, build(PRESETS, name, "extra", changes))


def usual_preset(name: str, model: str | None) -> str:
    """The preset meant by a name; the embedded model gets the one for small models if nobody chose."""
    return "small" if (name, model) == ("default", EMBEDDED) else name
