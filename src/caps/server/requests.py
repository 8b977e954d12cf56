"""A chat request: what goes upstream as it is, and what is meant for us.

What a judge reads of a chat request: every message, tool and wanted format as text; total and pure.

What a client asks of the selection: the object `caps` of a body, under the server's ceilings.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import msgspec

from caps.config import Option, RunConfig, find_option, per_request_options
from caps.core.errors import InputError, SettingError
from caps.core.settings import nearest
from caps.core.types import DEFAULT_ID, Candidate, Case, Message, Problem
from caps.datasets.case_files import DOMAINS, guess_domain, parse_case
from caps.registry import STRATEGIES, listing
from caps.runner import Runner
from caps.server.admission import Limits
from caps.server.errors import ApiError, invalid_value

PREFIX = "caps/"
OWN_FIELDS = ("caps", "model", "n", "stream", "stream_options")
LARGE_BODY = 64_000  # bytes
LARGE_FIELD = 16_000
FINDING_FIELDS = ("tests", "entry_point", "starter_code", "preamble")  # fields that findings read
STRUCTURED_FIELDS = ("tools", "functions", "response_format")
MIN_SECONDS = 0.1  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A request for an answer that is selected: `wanted` choices of the model `upstream`."""

    model: str
    n: int
    config: RunConfig
    problem: Problem
    stream: bool = False
    include_usage: bool = False
    fields: dict[str, Any] = field(repr=False)

    def upstream_body(self, number: int) -> bytes:
        """The body of the i-th draw: all of the client's, with a seed of its own where there is one."""
        body = {"model": self.model, **self.fields}
        seed = body.get("seed")
        if isinstance(seed, int) and not isinstance(seed, bool):
            body["seed"] = seed + number
        return msgspec.json.encode(body)

    def domain(self, candidates: tuple[Candidate, ...]) -> tuple[str, bool]:
        """The kind of task, and whether it was guessed; tool calls and JSON are `general`."""
        if self.config.domain is not None:
            return self.config.domain, False
        structured = any(self.fields.get(name) for name in STRUCTURED_FIELDS)
        return "general" if structured else guess_domain({}, candidates), True


def decode_body(payload: bytes) -> dict[str, Any]:
    """A body as the JSON object it must be; of a large one, only its small fields are decoded.

    Building the objects of 16 MB of JSON may take seconds, finding where its fields end takes none: the large
    fields stay `msgspec.Raw`, to be decoded in another process, or sent on as they are.
    """
    try:
        if len(payload) <= LARGE_BODY:
            return decode_object(payload)
        fields = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
        return {
            name: raw if memoryview(raw).nbytes > LARGE_FIELD else msgspec.json.decode(raw)
            for name, raw in fields.items()
        }
    except msgspec.ValidationError:
        raise invalid_value("body", "must be a JSON object") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise invalid_value("body", f"not JSON ({error})"[:200]) from None
    except InputError as error:
        raise invalid_value("body", str(error)) from None


def decode_object(payload: bytes) -> dict[str, Any]:
    """All of a body; `InputError` where it is no JSON object."""
    try:
        body = msgspec.json.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"not JSON ({error})"[:200]) from None
    if not isinstance(body, dict):
        raise InputError("must be a JSON object")
    return body


def is_large(body: dict[str, Any]) -> bool:
    """Whether some of a body is not decoded yet."""
    return any(isinstance(value, msgspec.Raw) for value in body.values())


def parse_large_problem(payload: bytes) -> Problem:
    """The problem that a large chat request poses; `InputError` names the field that is wrong."""
    body = decode_object(payload)
    check_messages(body)
    return chat_problem(body)


def check_messages(body: dict[str, Any]) -> None:
    """Refuse what is no list of messages."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InputError("messages: must be a list of at least one message")
    if not all(isinstance(message, dict) for message in messages):
        raise InputError("messages: every message must be an object")


def parse_case_body(body: dict[str, Any]) -> Case:
    """The case a body holds; `InputError` where it holds none."""
    row = {name: value for name, value in body.items() if name not in ("caps", "model")}
    try:
        return parse_case(msgspec.json.encode(row), default_id=DEFAULT_ID)
    except (OverflowError, UnicodeEncodeError) as error:
        raise InputError(f"cannot be read ({error})"[:200]) from None


def parse_large_case(payload: bytes) -> Case:
    """The case in a large body, without the fields that nothing looks at: those may be of any shape."""
    case = parse_case_body(decode_object(payload))
    return replace(case, extra={name: case.extra[name] for name in FINDING_FIELDS if name in case.extra})


def field_error(error: InputError) -> ApiError:
    """What is wrong with a field, which the words of the error begin with."""
    name, colon, words = str(error).partition(": ")
    return invalid_value(name, words) if colon and name.isidentifier() else invalid_value("body", str(error))


def wants_selection(body: dict[str, Any]) -> bool:
    """Whether a request wants its answer selected: its model is `caps` or `caps/…`."""
    model = body.get("model")
    return isinstance(model, str) and (model == PREFIX[:-1] or model.startswith(PREFIX))


def upstream_model(body: dict[str, Any], default: str | None) -> str:
    """The model behind `caps/<model>`; plain `caps` is the server's default."""
    model = body.get("model")
    name = model.removeprefix(PREFIX[:-1]).removeprefix("/") if isinstance(model, str) else ""
    if not name and not default:
        raise invalid_value("model", "name one as caps/<model>; GET /v1/models lists them")
    return name or str(default)


def parse_chat_request(
    body: dict[str, Any],
    base: RunConfig,
    limits: Limits,
    default_model: str | None,
    problem: Problem | None = None,
) -> ChatRequest:
    """Read a request, or raise a `Refusal` that names the field; `problem` is that of a large body."""
    if problem is None:
        try:
            check_messages(body)
        except InputError as error:
            raise field_error(error) from None
    stream, told = body.get("stream"), body.get("stream_options")
    if stream is not None and not isinstance(stream, bool):
        raise invalid_value("stream", "must be true or false")
    wanted = int(number(body, "n", default=1, least=1, most=limits.max_samples))
    request = ChatRequest(
        model=upstream_model(body, default_model),
        n=wanted,
        config=request_config(body.get("caps"), base, limits, least=wanted),
        problem=chat_problem(body) if problem is None else problem,
        stream=bool(stream),
        include_usage=isinstance(told, dict) and told.get("include_usage") is True,
        fields={name: value for name, value in body.items() if name not in OWN_FIELDS},
    )
    try:
        request.upstream_body(request.config.samples)
    except (OverflowError, UnicodeEncodeError, RecursionError) as error:
        raise invalid_value("body", f"cannot be sent on ({error})"[:200]) from None
    return request


def chat_problem(body: Mapping[str, Any]) -> Problem:
    """The request as a problem; what is no text is named, not shown."""
    messages = [_message(one) for one in body["messages"]]
    context = [
        Message(name, as_json(body[name]))
        for name in ("tools", "functions", "response_format")
        if body.get(name)
    ]
    return Problem((*context, *messages))


def as_json(value: object) -> str:
    """A value on one line."""
    return msgspec.json.encode(value).decode()


def tool_calls_of(message: Mapping[str, Any]) -> list[Any]:
    """The tool calls of a message, those of the older kind too."""
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        return calls
    called = message.get("function_call")
    return [{"function": called}] if isinstance(called, dict) else []


def _message(message: Mapping[str, Any]) -> Message:
    role, parts = message.get("role"), [_content(message.get("content"))]
    if calls := tool_calls_of(message):
        parts.append(as_json({"tool_calls": calls}))
    return Message(role if isinstance(role, str) else "user", "\n\n".join(filter(None, parts)))


def _content(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else as_json(content)
    return "\n".join(_part(part) for part in content)


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, dict) else None
    return f"[{kind if isinstance(kind, str) else 'a part'}: not shown here]"


def request_config(given: object, base: RunConfig, limits: Limits, *, least: int = 1) -> RunConfig:
    """The config of one request: the server's, with what the client may change; `least` samples at any rate.

    A `Refusal` names the field that cannot be taken.
    """
    row = {} if given is None else given
    if not isinstance(row, dict):
        raise invalid_value("caps", "must be an object")
    config = within_limits(base, limits)
    changes: dict[str, Any] = {}
    for name, value in row.items():
        option = _option(name)
        try:
            changes[option.name] = option.check(value, "")
        except SettingError:
            raise invalid_value(f"caps.{name}", f"must be {option.expected}") from None
    strategy = _listed_strategy(changes.get("strategy", base.strategy), base)
    kept = base.settings if strategy == base.strategy else {}
    changes["settings"] = {**kept, **_settings(changes.get("settings"), limits.max_samples)}
    if changes.get("domain") not in (None, *DOMAINS):
        raise invalid_value("caps.domain", f"must be one of {', '.join(DOMAINS)}")
    ceilings = {"samples": (1, limits.max_samples), "budget_seconds": (MIN_SECONDS, limits.max_seconds)}
    if limits.max_judge_tokens:
        ceilings["budget_tokens"] = (0, limits.max_judge_tokens)
    for limited, (lowest, highest) in ceilings.items():
        if changes.get(limited) is not None and not lowest <= changes[limited] <= highest:
            name = next(one for one in row if _option(one).name == limited)
            kind = "a whole number" if _option(name).kind == "integer" else "a number"
            raise invalid_value(f"caps.{name}", f"must be {kind} from {lowest:g} to {highest:g}")
    stated = {name: value for name, value in changes.items() if value is not None}
    config = replace(config, **stated)
    try:
        _ = Runner(config, offline=True).strategy
    except SettingError as error:
        raise invalid_value("caps.set", str(error)) from None
    return replace(config, samples=max(config.samples, least))


def within_limits(base: RunConfig, limits: Limits) -> RunConfig:
    """The server's config within its own limits."""
    return replace(
        base,
        samples=min(base.samples, limits.max_samples),
        budget_seconds=limits.max_seconds,
        budget_tokens=limits.max_judge_tokens or base.budget_tokens,
    )


def _option(name: str) -> Option:
    try:
        return find_option(name, among=per_request_options())
    except SettingError as error:
        raise invalid_value(f"caps.{name}"[:80], str(error).partition(": ")[2][:300]) from None


def number(
    row: Mapping[str, object],
    name: str,
    *,
    default: float,
    least: float,
    most: float,
    where: str = "",
    whole: bool = True,
) -> float:
    """A number of a row within limits, or a `Refusal` that names it."""
    value = row.get(name)
    if value is None:
        return default
    kinds = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
        kind = "a whole number" if whole else "a number"
        raise invalid_value(f"{where}{name}", f"must be {kind} from {least:g} to {most:g}")
    return value


@cache
def strategy_names() -> tuple[str, ...]:
    """All listed strategies; looked up once, since that reads the metadata of every package."""
    return (*(name for name, *_ in listing(STRATEGIES)), *STRATEGIES.aliases)


def _listed_strategy(name: object, base: RunConfig) -> str:
    """A listed strategy: whoever sends requests may not name a module of this machine to be imported."""
    known = strategy_names()
    if not isinstance(name, str) or name not in (*known, base.strategy):
        hint = nearest(name, list(known)) if isinstance(name, str) else ""
        raise invalid_value("caps.strategy", f"must be a listed strategy; {hint}see caps list strategies")
    return name


def _settings(given: Mapping[str, object] | None, most: int) -> dict[str, object]:
    """Fields of a strategy; a number among them may not ask for more work than samples may."""
    for name, value in (given or {}).items():
        if not isinstance(value, int | float | str):
            raise invalid_value("caps.set", f"{name[:40]!r} must be a number, a text, true or false")
        if _size(str(value)) > most:
            raise invalid_value("caps.set", f"{name[:40]!r} must be at most {most} here")
    return dict(given or {})


def _size(word: str) -> float:
    try:
        return abs(float(word))
    except ValueError:
        return 0.0
