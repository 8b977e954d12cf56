"""Panels: the judges of a run with several, each as it would judge alone, and how they are combined.

Each judge has the config and keys of a run in which it judges alone, so its requests and their journal keys
are the same.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from caps.config import Keys, RunConfig
from caps.core.errors import SettingError
from caps.core.judge_profile import JudgeProfile
from caps.core.panel import DEFAULT_CORRELATION, Member, PanelRule
from caps.costs.prices import Price
from caps.judge_source import JudgeSource
from caps.judge_tables import JudgeTable
from caps.judging.profiles import PanelProfile, read_panel_profile, read_profile
from caps.models.fleet import join_addresses


class PanelMember(NamedTuple):
    """A judge of a panel: its table, and the source of a run in which it judges alone."""

    table: JudgeTable
    source: JudgeSource


def check_panel(config: RunConfig) -> None:
    """Refuse settings that a panel cannot have."""
    if not config.judges:
        return
    if config.judge_model_e1 or config.judge_base_url_e1:
        raise SettingError(
            "judge_model_e1: a panel has no separate judge of partial views: give a [[judge]] the field "
            'level = "partial"'
        )
    recorded = [one for one in config.judges if one.recorded is not None]
    if recorded and config.recorded is None:
        raise SettingError(
            f"{recorded[0].where}: recorded: name the file of recorded verdicts: --recorded FILE"
        )
    if config.recorded is not None and not recorded:
        raise SettingError("recorded: no judge of the panel is recorded: give tables with recorded = NAME")


def member_config(config: RunConfig, table: JudgeTable) -> RunConfig:
    """The config of a run in which one judge of a panel judges alone."""
    price = {name: getattr(table, name) for name in ("price_input", "price_output", "price_cached")}
    only = not (config.model or config.judge_model or config.judge_base_url or table.base_url)
    return replace(
        config,
        judges=(),
        judge=table.judge,
        recorded=config.recorded if table.recorded is not None else None,
        recorded_judge=table.recorded,
        model=table.model if only else config.model,
        judge_model=None if only else table.model or config.judge_model,
        judge_base_url=table.base_url or config.judge_base_url,
        judge_preset=table.preset or config.judge_preset,
        max_tokens=table.max_tokens or config.max_tokens,
        judge_temperature=config.judge_temperature if table.temperature is None else table.temperature,
        reply=table.reply or config.reply,
        extra={**config.extra, **table.extra},
        **({} if table.price_input is None else price),
    )


def member_keys(config: RunConfig, keys: Keys, table: JudgeTable) -> Keys:
    """The keys of a judge of a panel: its own, or that of the run, which is not sent to another address."""
    if table.api_key_env:
        return replace(keys, judge_api_key=keys.members.get(table.api_key_env))
    base, judge = join_addresses(config.base_url), join_addresses(config.judge_base_url)
    address = join_addresses(table.base_url) or judge or base
    key = keys.judge_api_key if address == (judge or base) else None
    return replace(keys, judge_api_key=key or (keys.api_key if address == base else None))


def panel_rule(config: RunConfig, prices: Sequence[Price] | None) -> PanelRule:
    """How a panel is asked and combined: the cheapest judge first, then in the order of the tables.

    If a price is unknown, all are asked in the order of the tables. The correlation of errors is the one that
    is set, else the measured one, else the usual one.
    """
    path, tables = config.judge_profile, list(config.judges)
    measured = PanelProfile() if path is None else read_panel_profile(Path(path))
    if prices is not None:
        cost = [price.input + price.output for price in prices]
        tables = [tables[i] for i in sorted(range(len(tables)), key=lambda i: cost[i])]
    correlations = (config.panel_correlation, measured.correlation, DEFAULT_CORRELATION)
    return PanelRule(
        tuple(Member(one.name, _profile_of(one, measured), one.weight, one.levels) for one in tables),
        next(one for one in correlations if one is not None),
        config.panel_sure,
    )


def _profile_of(table: JudgeTable, measured: PanelProfile) -> JudgeProfile:
    """The reliability of a judge: as its table says, as measured with the panel, or an average one."""
    if isinstance(table.profile, str):
        return read_profile(Path(table.profile), option=f"{table.where}: profile =")
    if table.profile is not None:
        return replace(JudgeProfile(), **table.profile)
    return measured.members.get(table.name, JudgeProfile())
