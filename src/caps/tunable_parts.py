"""The parts of a run whose fields a user may set by name (`--set`): strategy, sampling method and preset."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from caps.building import make_strategy, with_skip_failing
from caps.config import RunConfig
from caps.core.play import Strategy
from caps.core.settings import override, setting_text, share_out
from caps.judging.profiles import read_profile
from caps.registry import path_of_class
from caps.sampling.base import Method
from caps.sampling.methods import make_method, make_preset, resolve_preset
from caps.sampling.presets import Preset


@dataclass(frozen=True)
class TunableParts:
    """The parts that a config names, or the objects given in their place, with the settings of the config.

    Only a `generating` run has settings of the method and the preset.
    """

    config: RunConfig
    given_strategy: Strategy | None = None
    given_method: Method | None = None
    given_preset: Preset | None = None
    generating: bool = False

    @cached_property
    def _changes(self) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        """The settings of the strategy, the method and the preset."""
        changes = {name: setting_text(value) for name, value in self.config.settings.items()}
        if not self.generating:
            return changes, {}, {}
        plain = self.given_strategy or make_strategy(self.config.strategy)
        method = self.given_method or make_method(self.config.method)
        preset = self.given_preset or make_preset(self._preset_name)
        of_strategy, of_method, of_preset = share_out(changes, plain, method, preset)
        return of_strategy, of_method, of_preset

    @cached_property
    def strategy(self) -> Strategy:
        """The strategy with its settings, the judge profile and `skip_failing` applied."""
        config, changes = self.config, self._changes[0]
        if self.given_strategy is not None:
            chosen = override(self.given_strategy, changes) if changes else self.given_strategy
        else:
            profile = None if config.judge_profile is None else read_profile(Path(config.judge_profile))
            chosen = make_strategy(config.strategy, changes, profile)
        return with_skip_failing(chosen, config.strategy) if config.skip_failing else chosen

    @property
    def strategy_name(self) -> str:
        """The name the strategy is recorded by."""
        return self.config.strategy if self.given_strategy is None else path_of_class(self.given_strategy)

    @cached_property
    def method(self) -> Method:
        """How candidates are generated."""
        changes = self._changes[1]
        if self.given_method:
            return override(self.given_method, changes)
        return make_method(self.config.method, changes)

    @cached_property
    def preset(self) -> Preset:
        """The sampling settings of the generating model."""
        changes = self.preset_changes
        return (
            override(self.given_preset, changes)
            if self.given_preset
            else make_preset(self._preset_name, changes)
        )

    @property
    def preset_changes(self) -> dict[str, str]:
        """The fields of a preset that the config sets."""
        return {"seed": str(self.config.seed), **self._changes[2]}

    @property
    def _preset_name(self) -> str:
        return resolve_preset(self.config.preset, self.config.model)
