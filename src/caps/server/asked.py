"""A chat request: what goes upstream as it is, and what is meant for us."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from caps.config import RunConfig
from caps.core.errors import InputError
from caps.core.types import Candidate, Problem
from caps.evidence.domains import domain_named, guess_domain
from caps.registry import DEFAULT_DOMAIN
from caps.server.options import number, read_request, wrong
from caps.server.problems import problem_of_chat
from caps.server.refusals import Refusal
from caps.server.rules import Limits

PREFIX = "caps/"
OURS = ("caps", "model", "n", "stream", "stream_options")
LARGE_BODY = 64_000  # bytes
LARGE_FIELD = 16_000
STRUCTURED = ("tools", "functions", "response_format")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request for an answer that is selected: `wanted` choices of the model `upstream`."""

    upstream: str
    wanted: int
    config: RunConfig
    problem: Problem
    stream: bool = False
    tell_usage: bool = False
    rest: dict[str, Any] = field(repr=False)

    def body(self, number: int) -> bytes:
        """The body of the i-th draw: all of the client's, with a seed of its own where there is one."""
        body = {"model": self.upstream, **self.rest}
        seed = body.get("seed")
        if isinstance(seed, int) and not isinstance(seed, bool):
            body["seed"] = seed + number
        return msgspec.json.encode(body)

    def domain(self, candidates: tuple[Candidate, ...]) -> tuple[str, bool]:
        """The kind of task, and whether it was guessed; tool calls and JSON are `general`."""
        if self.config.domain is not None:
            return domain_named(self.config.domain).name, False
        structured = any(self.rest.get(name) for name in STRUCTURED)
        return DEFAULT_DOMAIN if structured else guess_domain({}, candidates), True


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
        raise wrong("body", "must be a JSON object") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise wrong("body", f"not JSON ({error})"[:200]) from None
    except InputError as error:
        raise wrong("body", str(error)) from None


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


def read_problem(payload: bytes) -> Problem:
    """The problem that a large chat request poses; `InputError` names the field that is wrong."""
    body = decode_object(payload)
    check_messages(body)
    return problem_of_chat(body)


def check_messages(body: dict[str, Any]) -> None:
    """Refuse what is no list of messages."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InputError("messages: must be a list of at least one message")
    if not all(isinstance(message, dict) for message in messages):
        raise InputError("messages: every message must be an object")


def refused_field(error: InputError) -> Refusal:
    """What is wrong with a field, which the words of the error begin with."""
    name, colon, words = str(error).partition(": ")
    return wrong(name, words) if colon and name.isidentifier() else wrong("body", str(error))


def is_ours(body: dict[str, Any]) -> bool:
    """Whether a request wants its answer selected: its model is `caps` or `caps/…`."""
    model = body.get("model")
    return isinstance(model, str) and (model == PREFIX[:-1] or model.startswith(PREFIX))


def upstream_name(body: dict[str, Any], default: str | None) -> str:
    """The model behind `caps/<model>`; plain `caps` is the server's default."""
    model = body.get("model")
    name = model.removeprefix(PREFIX[:-1]).removeprefix("/") if isinstance(model, str) else ""
    if not name and not default:
        raise wrong("model", "name one as caps/<model>; GET /v1/models lists them")
    return name or str(default)


def read_asked(
    body: dict[str, Any],
    base: RunConfig,
    limits: Limits,
    default_model: str | None,
    problem: Problem | None = None,
) -> Asked:
    """Read a request, or raise a `Refusal` that names the field; `problem` is that of a large body."""
    if problem is None:
        try:
            check_messages(body)
        except InputError as error:
            raise refused_field(error) from None
    stream, told = body.get("stream"), body.get("stream_options")
    if stream is not None and not isinstance(stream, bool):
        raise wrong("stream", "must be true or false")
    wanted = int(number(body, "n", default=1, least=1, most=limits.n))
    asked = Asked(
        upstream=upstream_name(body, default_model),
        wanted=wanted,
        config=read_request(body.get("caps"), base, limits, least=wanted),
        problem=problem_of_chat(body) if problem is None else problem,
        stream=bool(stream),
        tell_usage=isinstance(told, dict) and told.get("include_usage") is True,
        rest={name: value for name, value in body.items() if name not in OURS},
    )
    try:
        asked.body(asked.config.samples)
    except (OverflowError, UnicodeEncodeError, RecursionError) as error:
        raise wrong("body", f"cannot be sent on ({error})"[:200]) from None
    return asked
