"""Inspect AI: a solver that samples N answers and keeps the best, a reducer of epochs, and a scorer.

    inspect eval task.py --solver caps/best_of_n -S n=8
    inspect eval task.py --epochs 8 --epochs-reducer caps/vote

The judge is a model of Inspect, by default the one that is evaluated, so its usage, limits and retries are
those of Inspect. `sample.metadata["caps"]` says what was chosen and why. Inspect must run on asyncio, its
default.
"""

from typing import Any

from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
    Model,
    ModelOutput,
    get_model,
)
from inspect_ai.scorer import Score, Scorer, ScoreReducer, Target, mean, score_reducer, scorer
from inspect_ai.solver import Generate, Solver, TaskState, fork, generate, solver
from inspect_ai.util import LimitExceededError

from caps.api import SelectOptions, best_sync, select
from caps.core.types import TokenLogprob, Usage
from caps.integrations.tool_models import ToolModel, reported, usage_of
from caps.models.base import Completion, Request

METADATA = "caps"  # the field of a sample's metadata
_ROLES = {"system": ChatMessageSystem, "assistant": ChatMessageAssistant, "user": ChatMessageUser}
_FINISHED = {"max_tokens": "length", "model_length": "length", "content_filter": "content_filter"}


class SelectionError(Exception):
    """The choice among the samples failed; the reason is in the message, and what was paid is kept."""


@solver
def best_of_n(
    n: int = 8,
    *,
    judge: str | Model | None = None,
    strategy: str | None = None,
    domain: str | None = None,
    journal: str | None = None,
    settings: dict[str, Any] | None = None,
    solver: Solver | None = None,
) -> Solver:
    """Solve a sample N times and keep the best: its messages and its output become those of the sample.

    `judge` is a model or a model role of Inspect, by default the role `judge`, else the evaluated model.
    `solver` is run N times (default: one generation). The other settings are those of `caps.select`; what is
    not given comes from the environment, such as `CAPS_JOURNAL`.
    """
    if isinstance(n, bool) or n < 1:
        raise ValueError(f"n = {n!r}: must be a whole number of at least 1")
    inner = solver or generate()
    options: SelectOptions = {"explain": True}
    if strategy is not None:
        options["strategy"] = strategy
    if journal is not None:
        options["journal"] = journal
    if settings is not None:
        options["settings"] = settings

    async def solve(state: TaskState, generate: Generate) -> TaskState:  # noqa: ARG001
        states = await fork(state, [inner] * n)
        texts = [one.output.completion for one in states]
        model = judge_of(judge)
        all_options: SelectOptions = {**options, "model": model}
        with reported(SelectionError, model):
            chosen = await select(_case(state, texts, domain), **all_options)
        winner = states[chosen.winner or 0]
        state.messages, state.output, state.completed = winner.messages, winner.output, winner.completed
        for name, value in winner.store.items():
            state.store.set(name, value)
        line = {name: value for name, value in chosen.to_dict().items() if name not in ("id", "text")}
        state.metadata[METADATA] = {**line, "judge": model.name, "candidates": texts}
        return state

    return solve


@score_reducer(name="caps/vote")  # Inspect adds no package to a name that is given
def vote() -> ScoreReducer:
    """The score of the most frequent answer of the epochs, the first of them where several are."""

    def reduce(scores: list[Score]) -> Score:
        texts = [one.answer if one.answer is not None else one.as_str() for one in scores]
        chosen = best_sync("", texts, strategy="majority", domain="math")
        winner = scores[chosen.winner or 0]
        return winner.model_copy(update={"metadata": {**(winner.metadata or {}), "caps_votes": texts}})

    return reduce


@scorer(metrics=[mean()])
def probability() -> Scorer:
    """The probability that the choice of `best_of_n` is right, as estimated: compare it with the accuracy."""

    async def score(state: TaskState, target: Target) -> Score:  # noqa: ARG001
        earlier = state.metadata.get(METADATA, {})
        value = earlier.get("probability")
        why = "; ".join(f"{one['what']} {one['change']:+.2f}" for one in earlier.get("explanation", ()))
        if value is None:
            return Score.unscored(explanation="no choice of caps/best_of_n with a probability")
        return Score(value=value, answer=state.output.completion, explanation=why)

    return score


def judge_of(judge: str | Model | None = None) -> ToolModel:
    """A model of Inspect as the judge: an object, a name, a role, or the role `judge`."""
    model = get_model(judge) if judge is not None else get_model(role="judge")

    async def complete(request: Request) -> Completion:
        config = GenerateConfig(
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            seed=request.seed,
            logprobs=True if request.top_logprobs else None,
            top_logprobs=request.top_logprobs or None,
            extra_body=dict(request.extra) or None,
        )
        output = await model.generate(_messages(request), config=config)
        if output.error:
            raise RuntimeError(output.error)
        return _completion(request, output)

    return ToolModel(str(model), complete, fatal=(LimitExceededError,))


def _case(state: TaskState, texts: list[str], domain: str | None) -> dict[str, Any]:
    """The case of a sample as `caps import` reads it from the log, so that the journal answers it again."""
    problem: Any = state.input
    if not isinstance(problem, str):
        problem = [{"role": one.role, "content": one.text} for one in problem]
    domain_field = {} if domain is None else {"domain": domain}
    return {"id": str(state.sample_id), "problem": problem, "candidates": texts, **domain_field}


def _messages(request: Request) -> list[ChatMessage]:
    if any(one.media for one in request.messages):
        raise ValueError("images and documents are not sent to a judge of Inspect")
    return [_ROLES.get(one.role, ChatMessageUser)(content=one.content) for one in request.messages]


def _completion(request: Request, output: ModelOutput) -> Completion:
    text, used = output.completion, output.usage
    usage: Usage = usage_of(request, text, None, None)
    if used is not None:
        cached = used.input_tokens_cache_read or 0
        prompt = used.input_tokens + cached + (used.input_tokens_cache_write or 0)
        usage = usage_of(
            request, text, prompt, used.output_tokens, cached=cached, reasoning=used.reasoning_tokens or 0
        )
    choice = output.choices[0] if output.choices else None
    logprobs = choice.logprobs.content if choice is not None and choice.logprobs is not None else []
    return Completion(
        text,
        _FINISHED.get(str(output.stop_reason), str(output.stop_reason)),
        usage,
        logprobs=tuple(
            TokenLogprob(
                one.token,
                one.logprob,
                tuple((other.token, other.logprob) for other in one.top_logprobs or ()),
            )
            for one in logprobs
        ),
        model=output.model,
    )
