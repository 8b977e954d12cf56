"""How candidates are drawn from a model: the style of the prompt and what is sent with it (paper, §E.4)."""

from dataclasses import dataclass

from caps.core.settings import check_settings, setting
from caps.prompts.render import STYLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """The settings of a sampling model; what is left to the server is not sent."""

    style: str = setting("instruct", "wording of the prompt", choices=STYLES)
    temperature_code: float = setting(
        0.6, "temperature for code; -1 leaves it to the server", least=-1, most=2
    )
    temperature_math: float = setting(
        1.0, "temperature for math; -1 leaves it to the server", least=-1, most=2
    )
    temperature_general: float = setting(0.7, "temperature for the rest; -1 likewise", least=-1, most=2)
    top_p: float = setting(0.95, "share of the likeliest tokens drawn from", least=0, most=1)
    top_k: int = setting(0, "number of tokens drawn from; -1 is all, 0 leaves it to the server", least=-1)
    max_tokens: int = setting(8192, "room for an answer, its reasoning included", least=1)
    seed: int = setting(1234, "of the first sample; the i-th after it has this plus i", least=0)
    thinking: str = setting(
        "default", "the chat template's thinking switch", choices=("default", "on", "off")
    )
    effort: str = setting(
        "default", "reasoning effort", choices=("default", "minimal", "low", "medium", "high")
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def temperature(self, kind: str) -> float | None:
        """The temperature for a kind of task, as prompts tell them apart; none where it is the server's."""
        value: float = getattr(self, f"temperature_{kind}")
        return None if value < 0 else value

    def extra(self) -> dict[str, object]:
        """What goes into the body beside the usual fields."""
        told: dict[str, object] = {}
        if self.top_k:
            told["top_k"] = self.top_k
        if self.thinking != "default":
            told["chat_template_kwargs"] = {"enable_thinking": self.thinking == "on"}
        if self.effort != "default":
            told["reasoning_effort"] = self.effort
        return told


ROOM = 32_768

QWEN3_14B = Preset(top_k=-1, max_tokens=ROOM)
QWEN3_4B_INSTRUCT = Preset(top_k=-1, max_tokens=ROOM, thinking="off")
QWEN3_4B_THINKING = Preset(top_k=-1, max_tokens=ROOM, thinking="on")
GPT_OSS_20B = Preset(style="plain", top_k=-1, max_tokens=ROOM, effort="medium")
SMALL = Preset(
    style="few-shot", temperature_code=0.5, temperature_math=0.5, temperature_general=0.5, max_tokens=256
)
