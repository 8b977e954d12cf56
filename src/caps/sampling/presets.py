"""Sampling presets: the style of the prompt and the parameters of the request (paper, §E.4)."""

from dataclasses import dataclass

from caps.core.settings import check_settings, setting
from caps.prompts.render import STYLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """The sampling settings of a model; what is left to the server is not sent."""

    style: str = setting("instruct", "style of the prompt", choices=STYLES)
    temperature_code: float = setting(
        0.6, "temperature for code; -1 leaves it to the server", least=-1, most=2
    )
    temperature_math: float = setting(
        1.0, "temperature for math; -1 leaves it to the server", least=-1, most=2
    )
    temperature_general: float = setting(
        0.7, "temperature for other domains; -1 leaves it to the server", least=-1, most=2
    )
    top_p: float = setting(0.95, "probability mass of the tokens sampled from", least=0, most=1)
    top_k: int = setting(0, "number of tokens sampled from; -1 is all, 0 leaves it to the server", least=-1)
    max_tokens: int = setting(8192, "largest number of output tokens, reasoning included", least=1)
    seed: int = setting(1234, "seed of the first sample; the i-th after it has this plus i", least=0)
    thinking: str = setting(
        "default", "the chat template's thinking switch", choices=("default", "on", "off")
    )
    reasoning_effort: str = setting(
        "default", "reasoning effort", choices=("default", "minimal", "low", "medium", "high")
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def temperature(self, kind: str) -> float | None:
        """The temperature for a kind of prompt; None leaves it to the server."""
        value: float = getattr(self, f"temperature_{kind}")
        return None if value < 0 else value

    def extra(self) -> dict[str, object]:
        """Additional fields of the request body."""
        fields: dict[str, object] = {}
        if self.top_k:
            fields["top_k"] = self.top_k
        if self.thinking != "default":
            fields["chat_template_kwargs"] = {"enable_thinking": self.thinking == "on"}
        if self.reasoning_effort != "default":
            fields["reasoning_effort"] = self.reasoning_effort
        return fields


LONG = 32_768

QWEN3_14B = Preset(top_k=-1, max_tokens=LONG)
QWEN3_4B_INSTRUCT = Preset(top_k=-1, max_tokens=LONG, thinking="off")
QWEN3_4B_THINKING = Preset(top_k=-1, max_tokens=LONG, thinking="on")
GPT_OSS_20B = Preset(style="plain", top_k=-1, max_tokens=LONG, reasoning_effort="medium")
SMALL = Preset(
    style="few-shot", temperature_code=0.5, temperature_math=0.5, temperature_general=0.5, max_tokens=256
)
