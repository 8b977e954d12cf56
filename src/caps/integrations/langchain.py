"""LangChain and LangGraph: a Runnable that runs another one N times and returns the best output.

    best = BestOfN(prompt | ChatOpenAI(model="gpt-4o-mini"), n=8, judge_llm=ChatOpenAI(model="gpt-4o"))
    best.invoke({"question": "What is 17 * 23?"})

It is a chain like any other: `ainvoke`, `batch`, `with_retry`, a node of a graph. The calls of a judge of
LangChain are part of its trace, so callbacks count their usage.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from langchain_core.exceptions import LangChainException
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, convert_to_messages
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import ensure_config, patch_config

from caps.api import BestOptions, Selected, best, best_sync
from caps.integrations.tool_models import ToolModel, chat, reported, usage_of
from caps.models.base import Completion, Request


class SelectionError(LangChainException):
    """The choice among the outputs failed; the reason is in the message, and what was paid is kept."""


class BestOfN(Runnable[Any, Any]):
    """Runs a Runnable N times with the same input and returns the best output.

    `judge_llm` compares the outputs; without it, the judge is that of `caps.best`, whose keywords are the
    other settings. `problem` makes the question that the judge reads from the input (default: its text). A
    message that is returned has the choice in `response_metadata["caps"]`.
    """

    def __init__(
        self,
        runnable: Runnable[Any, Any],
        n: int = 8,
        judge_llm: BaseChatModel | None = None,
        problem: Callable[[Any], str] | None = None,
        **options: Unpack[BestOptions],
    ) -> None:
        if n < 1:
            raise ValueError(f"n = {n!r}: must be at least 1")
        self.runnable, self.n, self.judge_llm = runnable, n, judge_llm
        self._problem, self._options = problem or as_text, options

    def invoke(self, input: Any, config: RunnableConfig | None = None, **more: Any) -> Any:  # noqa: A002
        """Run N times and choose."""

        def choose(value: Any, run_manager: Any, config: RunnableConfig) -> Any:
            own = patch_config(config, callbacks=run_manager.get_child())
            outputs = self.runnable.batch([value] * self.n, own, **more)
            options, model = self._asked(own, in_threads=True)
            with reported(SelectionError, model):
                chosen = best_sync(self._problem(value), [as_text(one) for one in outputs], **options)
            return _kept(chosen, outputs)

        return self._call_with_config(choose, input, ensure_config(config))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **more: Any) -> Any:  # noqa: A002
        """The same for code that is async."""

        async def choose(value: Any, run_manager: Any, config: RunnableConfig) -> Any:
            own = patch_config(config, callbacks=run_manager.get_child())
            outputs = await self.runnable.abatch([value] * self.n, own, **more)
            options, model = self._asked(own, in_threads=False)
            with reported(SelectionError, model):
                chosen = await best(self._problem(value), [as_text(one) for one in outputs], **options)
            return _kept(chosen, outputs)

        return await self._acall_with_config(choose, input, ensure_config(config))

    def _asked(self, config: RunnableConfig, *, in_threads: bool) -> tuple[BestOptions, ToolModel | None]:
        if self.judge_llm is None:
            return self._options, None
        model = judge_of(self.judge_llm, config, in_threads=in_threads)
        return {**self._options, "model": model}, model


def judge_of(
    llm: BaseChatModel, config: RunnableConfig | None = None, *, in_threads: bool = False
) -> ToolModel:
    """A chat model of LangChain as the judge; `config` has the callbacks that its calls are reported to.

    `in_threads`: it is called from code that is not async, where each choice has an event loop of its own,
    and an async client would not survive the first.
    """

    async def complete(request: Request) -> Completion:
        settings = {"temperature": request.temperature, "max_tokens": request.max_tokens}
        messages = convert_to_messages(chat(request))
        if in_threads:
            message = await asyncio.to_thread(llm.invoke, messages, config, **settings)
        else:
            message = await llm.ainvoke(messages, config, **settings)
        text, used = as_text(message), getattr(message, "usage_metadata", None) or {}
        details = used.get("input_token_details") or {}
        usage = usage_of(
            request,
            text,
            used.get("input_tokens"),
            used.get("output_tokens"),
            cached=details.get("cache_read") or 0,
        )
        finish = message.response_metadata.get("finish_reason") or "stop"
        return Completion(text, str(finish), usage)

    name = getattr(llm, "model_name", None) or getattr(llm, "model", None) or type(llm).__name__
    return ToolModel(str(name), complete)


def _kept(chosen: Selected, outputs: Sequence[Any]) -> Any:
    output = outputs[chosen.winner or 0]
    if not isinstance(output, AIMessage):
        return output
    line = {name: value for name, value in chosen.to_dict().items() if name != "text"}
    return output.model_copy(update={"response_metadata": {**output.response_metadata, "caps": line}})


def as_text(value: Any) -> str:
    """What a judge reads of an input or output: the text of messages, the only value of a mapping, JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, PromptValue):
        return as_text(value.to_messages())
    if isinstance(value, BaseMessage):
        calls = getattr(value, "tool_calls", None)
        return str(value.text) + (f"\n{json.dumps(calls, default=str)}" if calls else "")
    if isinstance(value, Mapping):
        return as_text(*value.values()) if len(value) == 1 else json.dumps(value, default=as_text)
    if isinstance(value, Sequence) and value and all(isinstance(one, BaseMessage) for one in value):
        return (
            as_text(value[0])
            if len(value) == 1
            else "\n\n".join(f"[{one.type}]\n{as_text(one)}" for one in value)
        )
    return str(value)
