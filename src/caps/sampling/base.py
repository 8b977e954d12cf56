"""What samplers share: presets, samples and their results, and the protocols of methods and generators."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from caps.core.domains import Grade
from caps.core.settings import check_settings, setting
from caps.core.types import Candidate, Case, Usage
from caps.judging.base import NOTHING
from caps.prompts.render import STYLES

Grading: TypeAlias = Callable[[Case, Candidate], Awaitable[Grade]]
Ranking: TypeAlias = Callable[[Case], Awaitable[Sequence[int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """The sampling settings of a model: style of the prompt and parameters of requests (paper, §E.4).

    What is left to the server is not sent.
    """

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


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample with its usage: a candidate, or the reason why there is none."""

    number: int
    candidate: Candidate | None
    usage: Usage = NOTHING
    finish: str = ""
    replayed: bool = False
    failure: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """The quality of a population at one step: its size, how many were graded, and how many are right."""

    number: int
    size: int
    right: int
    graded: int


@dataclass(slots=True)
class Sampled:
    """The result of a problem: a case with its candidates, or the reason why there is none."""

    name: str
    case: Case | None = None
    samples: list[Sample] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    failure: str | None = None
    unranked: int = 0

    def add(self, samples: Sequence[Sample]) -> list[Candidate]:
        """Add samples in order and return their candidates."""
        self.samples += samples
        return [sample.candidate for sample in samples if sample.candidate is not None]


class Generator(Protocol):
    """Generates answers with a model."""

    @property
    def seed(self) -> int:
        """The seed of the first sample."""
        ...

    async def generate(self, case: Case, numbers: Sequence[int]) -> list[Sample]:
        """Generate answers to a problem, all at once."""
        ...

    async def aggregate(
        self, case: Case, groups: Sequence[Sequence[str]], numbers: Sequence[int]
    ) -> list[Sample]:
        """Generate a new answer from each group of texts, all at once."""
        ...


@dataclass(frozen=True, slots=True)
class SamplingTools:
    """What a method may use besides the generator: a ranking of candidates and a grader.

    `rank` returns an empty order if the candidates cannot be ranked.
    """

    rank: Ranking | None = None
    grade: Grading | None = None


class Method(Protocol):
    """A way to generate candidates: a frozen settings object."""

    async def sample(self, case: Case, n: int, generator: Generator, tools: SamplingTools) -> Sampled:
        """Generate the candidates of a case; a failed sample does not stop the others."""
        ...


async def record_step(
    sampled: Sampled, case: Case, population: Sequence[Candidate], tools: SamplingTools
) -> None:
    """Record how many of a population are right, as far as they can be graded."""
    if tools.grade is None:
        return
    grades = [(await tools.grade(case, candidate)).correct for candidate in population]
    graded = [grade for grade in grades if grade is not None]
    sampled.steps.append(Step(len(sampled.steps), len(population), sum(graded), len(graded)))
