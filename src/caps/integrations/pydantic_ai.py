"""pydantic-ai: a model that asks another one N times and answers with the best response.

    agent = Agent(BestOfNModel("openai:gpt-4o-mini", n=8))
    agent.run_sync("What is 17 * 23?").output

A response may be a text or calls of tools. Its usage is that of all N requests and of the judge, whose calls
the wrapped model makes unless `judge_with` or the keywords of `caps.best` name another.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

from pydantic_ai.exceptions import UnexpectedModelBehavior, UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from caps.api import BestOptions, best
from caps.integrations.tool_models import ToolModel, reported, usage_of
from caps.models.base import Completion, Request


class SelectionError(UnexpectedModelBehavior):
    """The choice among the responses failed; the reason is in the message, and what was paid is kept."""


class BestOfNModel(WrapperModel):
    """Asks the wrapped model N times and answers with the best response.

    `provider_details["caps"]` of the response says how it was chosen. Streams are refused: there is nothing
    to stream before the choice.
    """

    def __init__(
        self,
        wrapped: Model | str,
        n: int = 8,
        judge_with: Model | str | None = None,
        **options: Unpack[BestOptions],
    ) -> None:
        super().__init__(wrapped)
        if n < 1:
            raise UserError(f"n = {n!r}: must be at least 1")
        self.n = n
        self._judge = None if judge_with is None else infer_model(judge_with)
        self._options = options

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Ask N times at once, and choose."""
        asked = (
            self.wrapped.request(messages, model_settings, model_request_parameters) for _ in range(self.n)
        )
        responses = await asyncio.gather(*asked)
        spent: list[RequestUsage] = []
        options, model = self._options, None
        if "judge" not in options and "model" not in options:
            model = judge_of(self._judge or self.wrapped, spent)
            options = {**options, "model": model}
        with reported(SelectionError, model):
            chosen = await best(_question(messages), [response_text(one) for one in responses], **options)
        response = responses[chosen.winner or 0]
        usage = RequestUsage()
        for one in (*(other.usage for other in responses), *spent):
            usage = usage + one
        line = {name: value for name, value in chosen.to_dict().items() if name != "text"}
        return replace(
            response, usage=usage, provider_details={**(response.provider_details or {}), "caps": line}
        )

    def request_stream(self, *_: Any, **__: Any) -> Any:
        """Refuse."""
        raise UserError("BestOfNModel cannot stream: the choice comes last; use run, not run_stream")


def judge_of(wrapped: Model, spent: list[RequestUsage] | None = None) -> ToolModel:
    """A model of pydantic-ai as the judge; the usage of its calls is added to `spent`."""

    async def complete(request: Request) -> Completion:
        if any(one.media for one in request.messages):
            raise ValueError("images and documents are not sent to a judge of pydantic-ai")
        parts = [
            SystemPromptPart(one.content) if one.role == "system" else UserPromptPart(one.content)
            for one in request.messages
        ]
        settings = ModelSettings(temperature=request.temperature, max_tokens=request.max_tokens)
        response = await wrapped.request([ModelRequest(parts=parts)], settings, ModelRequestParameters())
        if spent is not None:
            spent.append(response.usage)
        text, used = response_text(response), response.usage
        usage = usage_of(request, text, used.input_tokens, used.output_tokens, cached=used.cache_read_tokens)
        return Completion(text, str(response.finish_reason or "stop"), usage, model=response.model_name or "")

    return ToolModel(wrapped.model_name, complete)


def response_text(response: ModelResponse) -> str:
    """What a judge reads of a response: its texts, and its calls of tools as JSON."""
    found = [part.content for part in response.parts if isinstance(part, TextPart)]
    found += [
        json.dumps({"tool": part.tool_name, "arguments": part.args_as_dict()})
        for part in response.parts
        if isinstance(part, ToolCallPart)
    ]
    return "\n\n".join(found)


def _question(messages: Sequence[ModelMessage]) -> str:
    """The conversation so far, as a text."""
    found: list[tuple[str, str]] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            found.append(("assistant", response_text(message)))
            continue
        if getattr(message, "instructions", None):
            found.append(("system", str(message.instructions)))
        for part in message.parts:
            role = part.part_kind.removesuffix("-prompt")
            content = part.content if isinstance(part.content, str) else str(part.content)
            found.append((role, content))
    if len(found) == 1:
        return found[0][1]
    return "\n\n".join(f"[{role}]\n{text}" for role, text in found)
