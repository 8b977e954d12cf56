"""Parsing of requests: chat requests, cases, and the settings a client may change.

What goes upstream stays as the client sent it. What is meant for `caps` is checked against the limits of the
server. Parsing is total: an `ApiError` or `InputError` names the field that is wrong.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import msgspec

from caps.config import RunConfig, find_option, per_request_options
from caps.config.option import Option
from caps.core.errors import InputError, SettingError
from caps.core.settings import nearest
from caps.core.types import DEFAULT_ID, Candidate, Case, Media, Message, Problem, Usage
from caps.datasets.case_files import parse_case
from caps.datasets.media import MOST_PARTS, part_of, read_content
from caps.evidence.domains import domain_named, guess_domain, known_domains, local_fields
from caps.files import UNDECODABLE
from caps.judging.payment import USUAL_OUTPUT
from caps.registry import DEFAULT_DOMAIN, STRATEGIES, names
from caps.server.admission import Limits
from caps.server.errors import ApiError, invalid_value
from caps.session.cases import read_criteria
from caps.session.resolve import strategy_of
from caps.workers.texts import TextWorkers, function_named

Body = dict[str, Any]
PREFIX = "caps/"
OWN_FIELDS = ("caps", "model", "n", "stream", "stream_options")
LARGE_BODY = 64_000  # bytes
LARGE_FIELD = 16_000  # bytes
MAX_FIELDS = 1000  # of a body
MAX_KEYS = 100_000  # of all objects in a body
MAX_DEPTH = 100  # objects and lists in one another
STRUCTURED_FIELDS = ("tools", "functions", "response_format")
MIN_SECONDS = 0.1
LIMIT_NAME = "max_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A chat request to answer by selection: the best `n` of the samples of `model`.

    `fields` are the fields that are sent to the upstream as they are. In a request that was `translated` from
    another API, the limit of tokens has the name that the upstream wants.
    """

    model: str
    n: int
    config: RunConfig
    problem: Problem
    stream: bool = False
    include_usage: bool = False
    include_progress: bool = False
    virtual: bool = False
    translated: bool = False
    fields: dict[str, Any] = field(repr=False)

    @property
    def fixed_samples(self) -> int:
        """The number of samples, or the most if it is not fixed."""
        return self.config.max_n if self.config.samples == "auto" else self.config.samples

    @property
    def judge_fallback(self) -> str:
        """The model that judges if none is configured: the one that writes, or the first that does."""
        if self.virtual and self.config.generator:
            return str(self.config.generator[0]["model"])
        return self.model

    @property
    def most_usage(self) -> Usage:
        """What one sample may cost at most, as far as the client limits it."""
        limits = [self.fields.get(name) for name in (LIMIT_NAME, "max_completion_tokens")]
        most = next((one for one in limits if isinstance(one, int)), USUAL_OUTPUT)
        return Usage(sum(len(one.content) for one in self.problem.messages) // 4, most)

    def lost_usage(self, requests: int) -> Usage:
        """What requests for a sample may have cost that brought no reply, estimated."""
        most = self.most_usage
        return Usage(requests * most.prompt, requests * min(most.output, USUAL_OUTPUT), estimated=True)

    def upstream_body(self, number: int, model: str | None = None, *, limit_name: str = LIMIT_NAME) -> bytes:
        """The body of the request for one sample; a seed of the client counts up from sample to sample."""
        body = {"model": model or self.model, **self.fields}
        seed = body.get("seed")
        if isinstance(seed, int) and not isinstance(seed, bool):
            body["seed"] = seed + number
        if self.translated and LIMIT_NAME in body:
            body[limit_name] = body.pop(LIMIT_NAME)
        return msgspec.json.encode(body)

    def domain(self, candidates: tuple[Candidate, ...]) -> tuple[str, bool]:
        """The domain, and whether it was guessed. Requests with tools or a response format are `general`."""
        if self.config.domain is not None:
            return domain_named(self.config.domain).name, False
        structured = any(self.fields.get(name) for name in STRUCTURED_FIELDS)
        return DEFAULT_DOMAIN if structured else guess_domain({}, candidates), True


async def decode_body(payload: bytes, texts: TextWorkers) -> Body:
    """The JSON object of a body, within bounds; a large body is decoded and checked in a worker process."""
    try:
        if _count_keys(payload) > MAX_KEYS:
            raise InputError(f"has more than {MAX_KEYS:,} keys")
        await texts.run(partial(check_body, payload), size=len(payload), limit=LARGE_BODY)
        return split_body(payload)
    except InputError as error:
        raise invalid_value("body", str(error)) from None


def _count_keys(payload: bytes) -> int:
    """The keys of a JSON text, without decoding it; some may be missed, but no text is taken for a key."""
    return payload.count(b'":') - payload.count(b'\\":')


def check_body(payload: bytes) -> None:
    """`InputError` unless a body is a JSON object with few enough fields, keys and levels."""
    body = decode_object(payload)
    if len(body) > MAX_FIELDS:
        raise InputError(f"has more than {MAX_FIELDS:,} fields")
    keys = 0
    level: list[Any] = [body]
    for _ in range(MAX_DEPTH):
        keys += sum(len(value) for value in level if isinstance(value, dict))
        if keys > MAX_KEYS:
            raise InputError(f"has more than {MAX_KEYS:,} keys")
        level = [
            child
            for value in level
            for child in (value.values() if isinstance(value, dict) else value)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise InputError(f"is nested deeper than {MAX_DEPTH} levels")


def split_body(payload: bytes) -> Body:
    """The fields of a body whose shape was checked; large fields of a large body stay `msgspec.Raw`.

    They are decoded in a worker process, or sent on as they are.
    """
    if len(payload) <= LARGE_BODY:
        return decode_object(payload)
    fields = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
    budget = LARGE_BODY
    body: Body = {}
    for name, raw in sorted(fields.items(), key=lambda field: field[0] not in OWN_FIELDS):
        size = memoryview(raw).nbytes
        is_small = size <= min(LARGE_FIELD, budget)
        body[name] = msgspec.json.decode(raw) if is_small else raw
        budget -= size if is_small else 0
    return body


def decode_object(payload: bytes) -> Body:
    """The JSON object of a body, completely decoded; `InputError` if it is not one."""
    try:
        body = msgspec.json.decode(payload)
    except UNDECODABLE as error:
        raise InputError(f"not JSON ({error})"[:200]) from None
    if not isinstance(body, dict):
        raise InputError("must be a JSON object")
    return body


def is_large(body: Body) -> bool:
    """Whether some fields of a body are not decoded yet."""
    return any(isinstance(value, msgspec.Raw) for value in body.values())


def read_chat(to_chat: str, payload: bytes) -> tuple[bytes, Problem]:
    """The problem of a chat request; of one of another API, also the chat request that it stands for.

    `to_chat` is the name of the function that translates it, if any. `InputError` names the wrong field. A
    large request is read in a worker process.
    """
    body = decode_object(payload)
    if to_chat:
        body = function_named(to_chat)(body)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InputError("messages: must be a list of at least one message")
    if not all(isinstance(message, dict) for message in messages):
        raise InputError("messages: every message must be an object")
    try:
        return msgspec.json.encode(body) if to_chat else b"", chat_problem(body)
    except (OverflowError, UnicodeEncodeError, RecursionError) as error:
        raise InputError(f"cannot be encoded ({error})"[:200]) from None


def parse_case_body(body: Body, registered: Sequence[str] = ()) -> Case:
    """The case in a body; `InputError` if it is not one."""
    row = {name: value for name, value in body.items() if name not in ("caps", "model")}
    try:
        return parse_case(msgspec.json.encode(row), default_id=DEFAULT_ID, registered=registered)
    except (OverflowError, UnicodeEncodeError) as error:
        raise InputError(f"cannot be encoded ({error})"[:200]) from None


def parse_large_case(payload: bytes, registered: Mapping[str, tuple[str, ...]]) -> Case:
    """The case in a large body, parsed in a worker process; extra fields are kept if its domain reads them.

    `registered` are domains that the server knows and this process may not, with the fields they read.
    """
    case = parse_case_body(decode_object(payload), tuple(registered))
    fields = registered[case.domain] if case.domain in registered else domain_named(case.domain).fields
    return replace(case, extra={name: case.extra[name] for name in fields if name in case.extra})


def refuse_local_fields(case: Case) -> None:
    """`InputError` if a case names files or commands of this machine: those are for its users only."""
    refused = sorted(local_fields() & case.extra.keys())
    if refused:
        raise InputError(f"{refused[0]}: a client may not name files or commands of the server's machine")


def field_error(error: InputError) -> ApiError:
    """An `InputError` as an error for the client; its message may start with the name of the field."""
    name, colon, problem = str(error).partition(": ")
    return (
        invalid_value(name, problem) if colon and name.isidentifier() else invalid_value("body", str(error))
    )


def wants_selection(body: Body) -> bool:
    """Whether a request is to be answered by selection: its model is `caps` or `caps/…`."""
    model = body.get("model")
    return isinstance(model, str) and (model == PREFIX[:-1] or model.startswith(PREFIX))


def upstream_model(body: Body, default: str | None) -> str:
    """The model that `caps/<model>` names; `caps` alone is the default model of the server."""
    model = body.get("model")
    name = model.removeprefix(PREFIX[:-1]).removeprefix("/") if isinstance(model, str) else ""
    if not name and not default:
        raise invalid_value("model", "names no model: use caps/<model>; GET /v1/models lists the models")
    return name or str(default)


def parse_chat_request(
    body: Body,
    base: RunConfig,
    limits: Limits,
    default_model: str | None,
    problem: Problem,
    *,
    virtual: Mapping[str, RunConfig] | None = None,
    translated: bool = False,
) -> ChatRequest:
    """A chat request from its body and the problem that `read_chat` read from it."""
    stream, options = body.get("stream"), body.get("stream_options")
    if stream is not None and not isinstance(stream, bool):
        raise invalid_value("stream", "must be true or false")
    n = _choice_count(body.get("n"), limits.max_samples)
    model = upstream_model(body, default_model)
    named = (virtual or {}).get(model)
    request = ChatRequest(
        model=model,
        n=n,
        config=request_config(body.get("caps"), named or base, limits, least=n),
        virtual=named is not None,
        translated=translated,
        problem=problem,
        stream=bool(stream),
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        include_progress=isinstance(options, dict) and options.get("include_progress") is True,
        fields={name: value for name, value in body.items() if name not in OWN_FIELDS},
    )
    try:
        request.upstream_body(request.fixed_samples)
    except (OverflowError, UnicodeEncodeError, RecursionError) as error:
        raise invalid_value("body", f"cannot be encoded for the model server ({error})"[:200]) from None
    return request


def _choice_count(value: object, most: int) -> int:
    """The field `n` of a chat request: how many choices to return."""
    if value is None:
        return 1
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise invalid_value("n", f"must be a whole number from 1 to {most}")
    return value


def chat_problem(body: Mapping[str, Any]) -> Problem:
    """The problem that the judge reads: messages, tools and format as text; other content is named only."""
    messages = [_message(one) for one in body["messages"]]
    context = [
        Message(name, as_json(body[name]))
        for name in ("tools", "functions", "response_format")
        if body.get(name)
    ]
    return Problem((*context, *messages))


def as_json(value: object) -> str:
    """A value as JSON on one line."""
    return msgspec.json.encode(value).decode()


def tool_calls_of(message: Mapping[str, Any]) -> list[Any]:
    """The tool calls of a message, including a `function_call` of the older format."""
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        return calls
    called = message.get("function_call")
    return [{"function": called}] if isinstance(called, dict) else []


def _message(message: Mapping[str, Any]) -> Message:
    role, (text, media) = message.get("role"), _content(message.get("content"))
    if calls := tool_calls_of(message):
        text = "\n\n".join(filter(None, (text, as_json({"tool_calls": calls}))))
    return Message(role if isinstance(role, str) else "user", text, media)


def _content(content: object) -> tuple[str, tuple[Media, ...]]:
    """Text and images of a content; what the judge cannot be shown is named only."""
    if isinstance(content, str):
        return content, ()
    if not isinstance(content, list):
        return "" if content is None else as_json(content), ()
    texts = (part for part in content if isinstance(part, str) or _is_text(part))
    few = len(content) - sum(1 for _ in texts) <= MOST_PARTS
    return read_content([_part(part, shown=few) for part in content], "content", None)


def _is_text(part: object) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)


def _part(part: object, *, shown: bool) -> object:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return part["text"]
    try:
        part_of(part, "part")
        if shown:
            return part
    except InputError:
        pass
    kind = part.get("type") if isinstance(part, dict) else None
    return f"[{kind if isinstance(kind, str) else 'a part'}: not shown here]"


def request_config(options: object, base: RunConfig, limits: Limits, *, least: int = 1) -> RunConfig:
    """The config of one request: the server's, with the changes in the client's `caps` object.

    There are at least `least` samples. An `ApiError` names the field that is wrong.
    """
    row = {} if options is None else options
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
    if str(changes.get("criteria") or "").startswith("@"):
        raise invalid_value("caps.criteria", "must be the criteria themselves, not the name of a file")
    strategy = _listed_strategy(changes.get("strategy", base.strategy), base)
    kept = base.settings if strategy == base.strategy else {}
    changes["settings"] = {**kept, **_settings(changes.get("settings"), limits.max_samples)}
    if changes.get("domain") not in (None, base.domain, *known_domains()):  # never a path to import
        raise invalid_value("caps.domain", f"must be one of {', '.join(known_domains())}")
    most = limits.max_samples
    bounds = {"samples": (1, most), "max_n": (1, most), "budget_seconds": (MIN_SECONDS, limits.max_seconds)}
    for limited, (lowest, highest) in bounds.items():
        if changes.get(limited) not in (None, "auto") and not lowest <= changes[limited] <= highest:
            name = next(one for one in row if _option(one).name == limited)
            kind = "a whole number" if _option(name).kind != "number" else "a number"
            raise invalid_value(f"caps.{name}", f"must be {kind} from {lowest:g} to {highest:g}")
    config = replace(config, **{name: value for name, value in changes.items() if value is not None})
    for name, check in (
        ("set", lambda: strategy_of(config)),
        ("criteria", lambda: read_criteria(config.criteria)),
    ):
        try:
            check()
        except SettingError as error:
            raise invalid_value(f"caps.{name}", str(error)) from None
    if config.samples == "auto":
        return replace(config, max_n=max(config.max_n, least))
    return replace(config, samples=max(config.samples, least))


def within_limits(base: RunConfig, limits: Limits) -> RunConfig:
    """The config of the server within its limits."""
    return replace(
        base,
        samples=base.samples if base.samples == "auto" else min(base.samples, limits.max_samples),
        max_n=min(base.max_n, limits.max_samples),
        budget_seconds=limits.max_seconds,
    )


def client_name(option: Option) -> str:
    """The name of a setting in the `caps` object of a request: the short one, such as `n`."""
    return option.aliases[0] if option.aliases else option.name


def _option(name: str) -> Option:
    try:
        return find_option(name, among=per_request_options())
    except SettingError:
        allowed = [client_name(option) for option in per_request_options()]
        problem = f"no such field; {nearest(name, allowed)}there are {', '.join(allowed)}"
        raise invalid_value(f"caps.{name}"[:80], problem) from None


@cache
def strategy_names() -> tuple[str, ...]:
    """The names of all listed strategies; cached, since the lookup reads the metadata of every package."""
    return (*names(STRATEGIES), *STRATEGIES.aliases)


def _listed_strategy(name: object, base: RunConfig) -> str:
    """The name of a listed strategy; clients may not name modules of this machine to be imported."""
    listed = strategy_names()
    if not isinstance(name, str) or name not in (*listed, base.strategy):
        hint = nearest(name, list(listed)) if isinstance(name, str) else ""
        raise invalid_value("caps.strategy", f"unknown strategy; {hint}caps list strategies shows all")
    return name


def _settings(settings: Mapping[str, object] | None, most: int) -> dict[str, object]:
    """The settings of a strategy; numbers are limited, since they may multiply the work."""
    for name, value in (settings or {}).items():
        if not isinstance(value, int | float | str):
            raise invalid_value("caps.set", f"{name[:40]!r} must be a number, a string, true or false")
        if _size(str(value)) > most:
            raise invalid_value("caps.set", f"{name[:40]!r} must be at most {most} on this server")
    return dict(settings or {})


def _size(word: str) -> float:
    try:
        return abs(float(word))
    except ValueError:
        return 0.0
