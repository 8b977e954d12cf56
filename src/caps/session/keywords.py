"""Keywords of the Python API, typed; scripts/api_keywords.py writes this file from `RunConfig`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from caps.core.play import Strategy
from caps.judging.base import Judge
from caps.judging.callables import JudgeFunction
from caps.models.base import Model
from caps.sampling.base import Method, Preset

JudgeLike = Judge | JudgeFunction | str | Mapping[str, Any]


class ModelOptions(TypedDict, total=False):
    """Keywords of every function: the model and its key, the strategy, the journal, prices and limits."""

    api_key: str | None
    judge_api_key: str | None
    model: str | Model | None
    base_url: str | Sequence[str] | None
    api_key_env: str | None
    judge: Judge | JudgeFunction | str | Sequence[JudgeLike] | None
    judge_model: str | None
    judge_base_url: str | Sequence[str] | None
    reward_api: Literal["vllm-score", "vllm-classify", "vllm-pooling", "sglang"] | None
    reward_template: str | None
    reward_steps: Literal["last", "min", "mean"] | None
    reward_class: int | None
    recorded: str | Path | None
    recorded_judge: str | None
    confidence: Literal["verbal", "logprobs", "auto"] | None
    max_tokens: int | None
    judge_temperature: float | None
    reply: Literal["auto", "free", "tags", "json", "choice", "guided-choice", "regex"] | None
    extra: Mapping[str, object] | None
    keep_going: bool | None
    criteria: str | None
    vision: Literal["auto", "yes", "no"] | None
    prompts: str | Path | None
    tokenizer: str | Path | None
    strategy: Strategy | str
    settings: Mapping[str, object] | None
    skip_failing: bool | None
    explain: bool | None
    judge_profile: str | Path | None
    seed: int | None
    profile: str | None
    views: Mapping[str, object] | None
    hard_evidence: Literal["auto", "on", "off"] | None
    sandbox: Literal["auto", "bwrap", "unsafe-local", "off"] | None
    further_inputs: int | None
    further_seconds: float | None
    max_connections: int | Literal["auto"] | None
    warm_prefix: Literal["auto", "on", "off"] | None
    cache_hints: Literal["auto", "on", "off"] | None
    timeout: float | None
    otel: bool | None
    context_tokens: int | None
    threads: int | None
    journal: str | Path | None
    durable: bool | None
    price_input: float | None
    price_output: float | None
    price_cached: float | None
    budget_tokens: int | None
    budget_usd: float | None
    budget_seconds: float | None


class SelectOptions(ModelOptions, total=False):
    """Keywords of `select`."""

    domain: str | None


class BestOptions(ModelOptions, total=False):
    """Keywords of `best`."""

    domain: str | None


class ManyOptions(ModelOptions, total=False):
    """Keywords of `select_many` and `stream`: how tables are read, and total budgets."""

    group_by: str | None
    map: Mapping[str, str] | str | None
    progress: bool
    domain: str | None
    budget_total_tokens: int | None
    budget_total_usd: float | None
    budget_total_seconds: float | None


class SolveOptions(ModelOptions, total=False):
    """Keywords of `solve`: how answers are generated."""

    n: int | Literal["auto"] | None
    max_n: int | None
    target: float | None
    generator: Sequence[str | Mapping[str, object]] | None
    preset: Preset | str
    method: Method | str
    logprobs: bool | None
    domain: str | None


class OpenOptions(SolveOptions, total=False):
    """Keywords of `open`: those of `solve`, and budgets of all calls together."""

    budget_total_tokens: int | None
    budget_total_usd: float | None
    budget_total_seconds: float | None
