"""Presets of judges: room for replies and reasoning, temperature and effort by family of models.

Temperatures and sampling fields follow the recommendations of the models' makers; effort and the room for
replies are ours. None was measured. A preset fills in what is not set: an explicit setting always wins.
Nothing applies a preset that was not named.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_MAX_TOKENS = 4096
DEFAULT_TEMPERATURE = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgePreset:
    """How a family of models is asked; `matches` are parts of their names, all in one of the groups."""

    about: str
    max_tokens: int = DEFAULT_MAX_TOKENS
    temperature: float = DEFAULT_TEMPERATURE
    extra: Mapping[str, object] = field(default_factory=dict)
    matches: tuple[tuple[str, ...], ...] = ()


def _thinking(*, on: bool) -> dict[str, object]:
    """The switch of chat templates with an optional thinking mode, as vLLM and SGLang take it."""
    return {"chat_template_kwargs": {"enable_thinking": on}}


JUDGE_PRESETS: Mapping[str, JudgePreset] = {
    "qwen3-thinking": JudgePreset(
        about="Qwen3 with thinking on: long reasoning, sampled, since greedy decoding may repeat without end",
        max_tokens=32_768,
        temperature=0.6,
        extra={"top_p": 0.95, "top_k": 20, **_thinking(on=True)},
        matches=(("qwen3", "thinking"), ("qwq",)),
    ),
    "qwen3-instruct": JudgePreset(
        about="Qwen3 with thinking off: short replies",
        extra=_thinking(on=False),
        matches=(("qwen3",),),
    ),
    "deepseek-r1": JudgePreset(
        about="DeepSeek-R1 and its distilled models: long reasoning, sampled",
        max_tokens=32_768,
        temperature=0.6,
        extra={"top_p": 0.95},
        matches=(("deepseek", "r1"), ("deepseek-reasoner",)),
    ),
    "gpt-oss-low": JudgePreset(
        about="gpt-oss with low effort",
        max_tokens=8192,
        temperature=1.0,
        extra={"reasoning_effort": "low"},
        matches=(("gpt-oss",),),
    ),
    "gpt-oss-high": JudgePreset(
        about="gpt-oss with high effort",
        max_tokens=32_768,
        temperature=1.0,
        extra={"reasoning_effort": "high"},
    ),
    "openai-reasoning": JudgePreset(
        about="o-series and GPT-5 with low effort; they take no temperature but 1",
        max_tokens=16_384,
        temperature=1.0,
        extra={"reasoning_effort": "low"},
        matches=(("o1-",), ("o3",), ("o4-",), ("gpt-5",)),
    ),
    "claude-thinking": JudgePreset(
        about="Claude with extended thinking of 8,192 tokens, which takes no temperature but 1",
        max_tokens=12_288,
        temperature=1.0,
        extra={"thinking": {"type": "enabled", "budget_tokens": 8192}},
    ),
    "gemini-thinking": JudgePreset(
        about="Gemini 2.5 and later, which think before they reply, with low effort",
        max_tokens=16_384,
        temperature=1.0,
        extra={"reasoning_effort": "low"},
        matches=(("gemini-2.5",), ("gemini-3",)),
    ),
    "magistral": JudgePreset(
        about="Magistral: long reasoning, sampled",
        max_tokens=32_768,
        temperature=0.7,
        extra={"top_p": 0.95},
        matches=(("magistral",),),
    ),
    "short": JudgePreset(
        about="any chat model that replies with little more than the verdict", max_tokens=512
    ),
}


NO_PRESET = JudgePreset(about="what is asked without a preset")


def suggested_preset(model: str) -> str | None:
    """The preset whose family a model's name belongs to, if any; nothing applies it unasked."""
    plain = model.lower()
    for name, preset in JUDGE_PRESETS.items():
        if any(all(part in plain for part in group) for group in preset.matches):
            return name
    return None
