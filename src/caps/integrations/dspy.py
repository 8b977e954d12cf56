"""DSPy: a module in the place of `dspy.BestOfN` that needs no reward function, because a judge compares.

    best = BestOfN(dspy.ChainOfThought("question -> answer"), N=8)
    best(question="What is 17 * 23?").answer

The judge is an LM of DSPy, by default the one of the module, so DSPy counts and caches its calls.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Unpack

import dspy
from dspy.utils import exceptions

from caps.api import BestOptions, Selected, best, best_sync
from caps.integrations.tool_models import ToolModel, chat, reported, usage_of
from caps.models.base import Completion, Request

_BASE: type[Exception] = getattr(exceptions, "DSPyError", Exception)  # since DSPy 3.2


class SelectionError(_BASE):  # type: ignore[misc, valid-type]
    """The choice among the predictions failed; the reason is in the message, and what was paid is kept."""


class BestOfN(dspy.Module):
    """Runs a module N times and returns the best prediction; its field `caps` says how it was chosen.

    `judge_lm` compares the predictions, by default the LM of the module. Instead, `judge` is a function
    `(problem, a, b)`. The other keywords are those of `caps.best`. Predictions that failed are left out; if
    all failed, the last error is raised.
    """

    def __init__(
        self,
        module: dspy.Module,
        N: int,  # noqa: N803  (as in DSPy)
        judge_lm: dspy.BaseLM | None = None,
        **options: Unpack[BestOptions],
    ) -> None:
        super().__init__()
        if N < 1:
            raise ValueError(f"N = {N!r}: must be at least 1")
        self.module, self.N, self.judge_lm = module, N, judge_lm
        self._options = options

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Predict N times, one after the other, and choose."""
        attempts = []
        for module in self._copies():
            try:
                with dspy.context(trace=[]):
                    attempts.append((module(**inputs), list(dspy.settings.trace)))
            except Exception as error:
                attempts.append((error, []))
        problem, texts, options, model = self._asked(inputs, attempts, in_threads=True)
        with reported(SelectionError, model):
            chosen = best_sync(problem, texts, **options)
        return self._kept(chosen, attempts)

    async def aforward(self, **inputs: Any) -> dspy.Prediction:
        """Predict N times at once, and choose."""

        async def attempt(module: dspy.Module) -> tuple[Any, list[Any]]:
            try:
                with dspy.context(trace=[]):
                    return await module.acall(**inputs), list(dspy.settings.trace)
            except Exception as error:
                return error, []

        attempts = await asyncio.gather(*map(attempt, self._copies()))
        problem, texts, options, model = self._asked(inputs, attempts, in_threads=False)
        with reported(SelectionError, model):
            chosen = await best(problem, texts, **options)
        return self._kept(chosen, attempts)

    def _lm(self) -> dspy.BaseLM:
        try:
            found = self.module.get_lm()
        except ValueError:  # several predictors, several LMs
            found = None
        return found or dspy.settings.lm

    def _copies(self) -> list[dspy.Module]:
        """The module N times, each with its own samples."""
        lm, copies = self._lm(), []
        for number in range(self.N):
            one = self.module.deepcopy()
            one.set_lm(lm.copy(rollout_id=lm.kwargs.get("rollout_id", 0) + number, temperature=1.0))
            copies.append(one)
        return copies

    def _asked(
        self, inputs: Mapping[str, Any], attempts: list[tuple[Any, list[Any]]], *, in_threads: bool
    ) -> tuple[str, list[str], BestOptions, ToolModel | None]:
        done = [one for one, _ in attempts if not isinstance(one, Exception)]
        if not done:
            raise attempts[-1][0]
        options, model = dict(self._options), None
        if "judge" not in options and "model" not in options:
            model = judge_of(self.judge_lm or self._lm(), in_threads=in_threads)
            options["model"] = model
        texts = [_fields(one.toDict()) for one in done]
        return _fields(inputs), texts, options, model  # type: ignore[return-value]

    def _kept(self, chosen: Selected, attempts: list[tuple[Any, list[Any]]]) -> dspy.Prediction:
        done = [one for one in attempts if not isinstance(one[0], Exception)]
        prediction, trace = done[chosen.winner or 0]
        if dspy.settings.trace is not None:
            dspy.settings.trace.extend(trace)
        prediction.caps = {name: value for name, value in chosen.to_dict().items() if name != "text"}
        return prediction


def judge_of(lm: dspy.BaseLM, *, in_threads: bool = False) -> ToolModel:
    """An LM of DSPy as the judge; `in_threads` where it is called from code that is not async."""

    async def complete(request: Request) -> Completion:
        more = {"rollout_id": request.draw} if request.draw and request.temperature else {}
        own = lm.copy(temperature=request.temperature, max_tokens=request.max_tokens, **more)
        if in_threads:
            (said, *_) = await asyncio.to_thread(own, messages=chat(request))
        else:
            (said, *_) = await own.acall(messages=chat(request))
        text = said if isinstance(said, str) else str(said.get("text") or "")
        used = own.history[-1].get("usage") or {} if own.history else {}
        usage = usage_of(request, text, used.get("prompt_tokens"), used.get("completion_tokens"))
        return Completion(text, "stop", usage)

    return ToolModel(str(lm.model), complete)


def _fields(values: Mapping[str, Any]) -> str:
    """Fields as a text; a single one stands for itself."""
    if len(values) == 1:
        return str(*values.values())
    return "\n\n".join(f"{name}: {value}" for name, value in values.items())
