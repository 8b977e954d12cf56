"""What each client of `scripts/clients.py` is asked to do; runs in the client's own environment.

Usage: client_checks.py PACKAGE URL. Prints one JSON object: versions, and for each check `ok` or the error.
"""

# ruff: noqa: PLC0415, S101, D103
import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

MODEL, KEY = "caps/m", "sk-client"
QUESTION = "What is 2 + 2?"
TURN = [{"role": "user", "content": QUESTION}]
ANSWER = "It is 4."
PICTURE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUg=="
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT_TOOL = {"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}
Checks = Iterator[tuple[str, str, Callable[[], object]]]


def check(said: object, wanted: object = ANSWER) -> None:
    assert said == wanted, f"{said!r} instead of {wanted!r}"


def openai_checks(url: str) -> Checks:
    import openai

    client = openai.OpenAI(base_url=url, api_key=KEY, max_retries=0)
    tool = {"type": "function", "name": "look_up", "parameters": SCHEMA}

    def chat() -> None:
        answer = client.chat.completions.create(model=MODEL, messages=TURN)
        check(answer.choices[0].message.content)
        assert answer.usage.total_tokens > 0
        assert answer.caps["probability"] > 0

    def stream() -> None:
        parts = client.chat.completions.create(model=MODEL, messages=TURN, stream=True)
        check("".join(part.choices[0].delta.content or "" for part in parts))

    def tools() -> None:
        answer = client.chat.completions.create(model=MODEL, messages=TURN, tools=[CHAT_TOOL])
        (call,) = answer.choices[0].message.tool_calls
        result = {"role": "tool", "tool_call_id": call.id, "content": "cold"}
        turns = [*TURN, answer.choices[0].message, result]
        again = client.chat.completions.create(model=MODEL, messages=turns, tools=[CHAT_TOOL])
        check(again.choices[0].message.content)

    def responses() -> None:
        answer = client.responses.create(model=MODEL, input=QUESTION, instructions="Be brief.")
        check(answer.output_text)
        assert answer.usage.total_tokens > 0
        assert answer.caps["probability"] > 0

    def responses_stream() -> None:
        with client.responses.stream(model=MODEL, input=QUESTION) as events:
            check("".join(one.delta for one in events if one.type == "response.output_text.delta"))
            check(events.get_final_response().output_text)

    def responses_tools() -> None:
        given: list[Any] = [{"role": "user", "content": QUESTION}]
        answer = client.responses.create(model=MODEL, input=given, tools=[tool])
        call = answer.output[-1]
        check(json.loads(call.arguments), {"city": "Oslo"})
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "cold"}
        again = client.responses.create(model=MODEL, input=[*given, *answer.output, result], tools=[tool])
        check(again.output_text)

    def images() -> None:
        parts = [
            {"type": "input_text", "text": QUESTION},
            {"type": "input_image", "image_url": PICTURE, "detail": "low"},
        ]
        answer = client.responses.create(model=MODEL, input=[{"role": "user", "content": parts}])
        check(answer.output_text)

    yield "chat", "answer", chat
    yield "chat", "stream", stream
    yield "chat", "tools", tools
    yield "responses", "answer", responses
    yield "responses", "stream", responses_stream
    yield "responses", "tools", responses_tools
    yield "responses", "image", images


def anthropic_checks(url: str) -> Checks:
    import anthropic

    client = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key=KEY, max_retries=0)
    asked: dict[str, Any] = {"model": MODEL, "max_tokens": 100, "messages": TURN}
    tool = {"name": "look_up", "input_schema": SCHEMA}

    def answer() -> None:
        said = client.messages.create(**asked, system="Be brief.")
        check((said.content[0].text, said.stop_reason), (ANSWER, "end_turn"))
        assert said.usage.input_tokens > 0
        assert said.caps["probability"] > 0

    def stream() -> None:
        with client.messages.stream(**asked) as events:
            check("".join(events.text_stream))
            final = events.get_final_message()
        assert final.usage.output_tokens > 0
        assert final.caps["probability"] > 0

    def tools() -> None:
        said = client.messages.create(**asked, tools=[tool])
        call = said.content[-1]
        check((call.input, said.stop_reason), ({"city": "Oslo"}, "tool_use"))
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "cold"}
        turns = [
            *TURN,
            {"role": "assistant", "content": said.content},
            {"role": "user", "content": [result]},
        ]
        again = client.messages.create(model=MODEL, max_tokens=9, messages=turns, tools=[tool])
        check(again.content[0].text)

    def images() -> None:
        source = {"type": "base64", "media_type": "image/png", "data": PICTURE.partition(",")[2]}
        parts = [{"type": "text", "text": QUESTION}, {"type": "image", "source": source}]
        said = client.messages.create(**{**asked, "messages": [{"role": "user", "content": parts}]})
        check(said.content[0].text)

    yield "messages", "answer", answer
    yield "messages", "stream", stream
    yield "messages", "tools", tools
    yield "messages", "image", images


def litellm_checks(url: str) -> Checks:
    import litellm

    def of(api: str) -> dict[str, Any]:
        if api == "chat":
            return {"model": f"openai/{MODEL}", "api_base": url, "api_key": KEY, "max_retries": 0}
        address = url.removesuffix("/v1")
        return {"model": f"anthropic/{MODEL}", "api_base": address, "api_key": KEY, "max_retries": 0}

    def answer(api: str) -> None:
        said = litellm.completion(**of(api), messages=TURN)
        check(said.choices[0].message.content)
        assert said.usage.total_tokens > 0

    def stream(api: str) -> None:
        parts = litellm.completion(**of(api), messages=TURN, stream=True)
        check("".join(part.choices[0].delta.content or "" for part in parts))

    def tools(api: str) -> None:
        said = litellm.completion(**of(api), messages=TURN, tools=[CHAT_TOOL])
        (call,) = said.choices[0].message.tool_calls
        check(json.loads(call.function.arguments), {"city": "Oslo"})
        result = {"role": "tool", "tool_call_id": call.id, "content": "cold"}
        turns = [*TURN, said.choices[0].message, result]
        again = litellm.completion(**of(api), messages=turns, tools=[CHAT_TOOL])
        check(again.choices[0].message.content)

    def responses() -> None:
        said = litellm.responses(**of("chat"), input=QUESTION)
        check(said.output[-1].content[0].text)

    def responses_stream() -> None:
        events = litellm.responses(**of("chat"), input=QUESTION, stream=True)
        check("".join(one.delta for one in events if one.type == "response.output_text.delta"))

    for api in ("chat", "messages"):
        yield api, "answer", lambda api=api: answer(api)
        yield api, "stream", lambda api=api: stream(api)
        yield api, "tools", lambda api=api: tools(api)
    yield "responses", "answer", responses
    yield "responses", "stream", responses_stream


def langchain_openai_checks(url: str) -> Checks:
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    def text_of(said: Any) -> str:
        content = said.content
        return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)

    def model(api: str) -> Any:
        return ChatOpenAI(
            model=MODEL, base_url=url, api_key=KEY, max_retries=0, use_responses_api=api == "responses"
        )

    def answer(api: str) -> None:
        said = model(api).invoke(QUESTION)
        check(text_of(said))
        assert said.usage_metadata["total_tokens"] > 0

    def stream(api: str) -> None:
        check("".join(text_of(part) for part in model(api).stream(QUESTION)))

    def tools(api: str) -> None:
        bound = model(api).bind_tools([CHAT_TOOL])
        said = bound.invoke(QUESTION)
        (call,) = said.tool_calls
        check(call["args"], {"city": "Oslo"})
        result = ToolMessage("cold", tool_call_id=call["id"])
        check(text_of(bound.invoke([HumanMessage(QUESTION), said, result])))

    for api in ("chat", "responses"):
        yield api, "answer", lambda api=api: answer(api)
        yield api, "stream", lambda api=api: stream(api)
        yield api, "tools", lambda api=api: tools(api)


def instructor_checks(url: str) -> Checks:
    import instructor
    from openai import OpenAI
    from pydantic import BaseModel

    class Place(BaseModel):
        city: str

    def client(mode: Any) -> Any:
        return instructor.from_openai(OpenAI(base_url=url, api_key=KEY, max_retries=0), mode=mode)

    def tools() -> None:
        made = client(instructor.Mode.TOOLS).chat.completions.create(
            model=MODEL, messages=TURN, response_model=Place, max_retries=0
        )
        check(made.city, "Oslo")

    def form() -> None:
        made = client(instructor.Mode.JSON).chat.completions.create(
            model=MODEL, messages=TURN, response_model=Place, max_retries=0
        )
        check(made.city, "Oslo")

    def stream() -> None:
        parts = client(instructor.Mode.TOOLS).chat.completions.create_partial(
            model=MODEL, messages=TURN, response_model=Place, max_retries=0
        )
        check(list(parts)[-1].city, "Oslo")

    def responses() -> None:
        made = client(instructor.Mode.RESPONSES_TOOLS).responses.create(
            model=MODEL, input=QUESTION, response_model=Place, max_retries=0
        )
        check(made.city, "Oslo")

    def messages() -> None:
        import anthropic

        talks = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key=KEY, max_retries=0)
        made = instructor.from_anthropic(talks).messages.create(
            model=MODEL, max_tokens=100, messages=TURN, response_model=Place, max_retries=0
        )
        check(made.city, "Oslo")

    yield "chat", "answer", form
    yield "chat", "stream", stream
    yield "chat", "tools", tools
    yield "responses", "tools", responses
    yield "messages", "tools", messages


def dspy_checks(url: str) -> Checks:
    import dspy

    def configure(kind: str) -> None:
        dspy.configure(
            lm=dspy.LM(
                f"openai/{MODEL}", api_base=url, api_key=KEY, cache=False, model_type=kind, num_retries=0
            )
        )

    def answer(kind: str) -> None:
        configure(kind)
        check(dspy.Predict("question -> answer")(question=QUESTION).answer)

    def stream() -> None:
        configure("chat")
        listener = dspy.streaming.StreamListener(signature_field_name="answer")
        program = dspy.streamify(dspy.Predict("question -> answer"), stream_listeners=[listener])

        async def read() -> Any:
            said = [part async for part in program(question=QUESTION)]
            assert any(isinstance(part, dspy.streaming.StreamResponse) for part in said), "no piece came"
            return said[-1].answer

        check(asyncio.run(read()))

    def tools() -> None:
        configure("chat")

        asked = []

        def look_up(city: str) -> str:
            asked.append(city)
            return "cold"

        said = dspy.ReAct("question -> answer", tools=[look_up], max_iters=3)(question=QUESTION)
        check((said.answer, asked), (ANSWER, ["Oslo"]))

    yield "chat", "answer", lambda: answer("chat")
    yield "chat", "stream", stream
    yield "chat", "tools", tools
    yield "responses", "answer", lambda: answer("responses")


CHECKS = {
    "openai": openai_checks,
    "anthropic": anthropic_checks,
    "litellm": litellm_checks,
    "langchain-openai": langchain_openai_checks,
    "instructor": instructor_checks,
    "dspy": dspy_checks,
}


def main() -> None:
    package, url = sys.argv[1:]
    results = []
    for api, name, run in CHECKS[package](url):
        try:
            run()
            said = "ok"
        except Exception as error:
            said = f"{type(error).__name__}: {error}"[:400]
        results.append([api, name, said])
    print(json.dumps({"version": version(package), "results": results}))


if __name__ == "__main__":
    main()
