"""Reward and classifier servers: a problem and an answer go in, a score comes out.

A request holds the messages of a problem and one answer, so that the journal keeps one score per answer.
Those of the same problem that wait at the same time are sent as one call, if the API takes a list.

Rules that must not be broken:

* A score is a finite number of the server, for exactly the answer that was sent. If a reply has too few
  scores, too many, or one that is no number, the answers concerned have none.
* A call that the server refuses is repeated for each of its answers alone: one that is too long fails alone.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from typing import Any

import msgspec

from caps.core.errors import GarbledError, ModelError, RefusedError, SettingError, TooLongError
from caps.core.text import estimate_tokens
from caps.core.types import Message, Usage
from caps.models.base import Completion, Notify, Request, ignore
from caps.models.http import Call, Exchange
from caps.models.servers import Upstream
from caps.models.wire import MAX_COUNT, encode_with_extra

BATCH = 32  # answers of one call
BATCH_CHARACTERS = 400_000  # of the answers of one call
WINDOW = 0.003  # seconds that an answer waits for others of its problem
REPLY_BYTES = 4 << 20  # of a reply: 32 answers of 8,000 tokens with a number for each token
MAX_CLASSES = 64  # numbers for one answer or token; more are an embedding
RESERVED = {"model", "text_1", "text_2", "input", "messages", "text"}
MOST_NOTICES = 10
CANARY = (Message("user", "What is 2 + 2?"), Message("assistant", "2 + 2 is 4."))


@dataclass(frozen=True, slots=True)
class Form:
    """How answers are sent and scores are read.

    `template` is the text of a template, `chatml`, `llama3` or `plain`, or empty: then the server applies the
    chat template of its model. `steps` combines the numbers of several tokens or steps, and `class_` picks
    the class of a classifier, from 0, or from the end if it is negative.
    """

    api: str
    template: str = ""
    steps: str = "last"
    class_: int = -1

    def __post_init__(self) -> None:
        api = APIS[self.api]
        if self.template and not api.takes_text:
            raise SettingError(
                f"reward_template: {self.api} takes problem and answer separately: leave it out"
            )
        if not self.template and not api.takes_chat and api.takes_text:
            raise SettingError(
                f"--reward-api {self.api} takes rendered text, so it needs --set reward_template=FORMAT: "
                f"the model's chat format ({', '.join(TEMPLATES)}), or a file with {{problem}} and {{answer}}"
            )
        if self.template and self.template not in TEMPLATES:
            missing = [one for one in ("{problem}", "{answer}") if one not in self.template]
            if missing:
                raise SettingError(
                    f"reward_template: has no {missing[0]}; it is {', '.join(TEMPLATES)}, or a file with "
                    "{problem} and {answer} in it"
                )

    @property
    def name(self) -> str:
        """What distinguishes the scores of this form in the journal."""
        is_file = self.template not in ("", *TEMPLATES)
        template = sha256(self.template.encode()).hexdigest()[:16] if is_file else self.template
        return f"reward {self.api} {template or '-'} {self.steps} {self.class_}"

    def render(self, messages: Sequence[Message]) -> str:
        """The messages of a problem and an answer as one text."""
        *problem, answer = messages
        if self.template in _TURNS:
            begin, end = _TURNS[self.template]
            return "".join(f"{begin.format(one.role)}{one.content}{end}" for one in messages)
        before, _, after = (_PLAIN if self.template == "plain" else self.template).partition("{answer}")
        asked = "\n\n".join(one.content for one in problem)
        return f"{before.replace('{problem}', asked)}{answer.content}{after.replace('{problem}', asked)}"


_TURNS = {
    "chatml": ("<|im_start|>{}\n", "<|im_end|>\n"),
    "llama3": ("<|start_header_id|>{}<|end_header_id|>\n\n", "<|eot_id|>"),
}
_PLAIN = "{problem}\n\n{answer}"
TEMPLATES = ("chatml", "llama3", "plain")


@dataclass(frozen=True, slots=True)
class Api:
    """An API: its path, the body of a call about some answers, and where the numbers of its reply are."""

    path: str
    write: Callable[[Form, Sequence[Sequence[Message]]], dict[str, Any]]
    read: Callable[[Any], Iterable[tuple[object, object]]]  # the index of an answer, and its numbers
    takes_text: bool = False
    takes_chat: bool = False


def _problem(rows: Sequence[Sequence[Message]]) -> str:
    *problem, _ = rows[0]
    return "\n\n".join(one.content for one in problem)


def _answers(rows: Sequence[Sequence[Message]]) -> list[str]:
    return [row[-1].content for row in rows]


def _write_score(form: Form, rows: Sequence[Sequence[Message]]) -> dict[str, Any]:  # noqa: ARG001
    return {"text_1": _problem(rows), "text_2": _answers(rows), "use_activation": False}


def _write_input(form: Form, rows: Sequence[Sequence[Message]]) -> dict[str, Any]:
    if form.template:
        return {"input": [form.render(row) for row in rows]}
    return {"messages": [{"role": one.role, "content": one.content} for one in rows[0]]}


def _write_classify(form: Form, rows: Sequence[Sequence[Message]]) -> dict[str, Any]:
    return {**_write_input(form, rows), "use_activation": False}


def _write_sglang(form: Form, rows: Sequence[Sequence[Message]]) -> dict[str, Any]:
    return {"text": [form.render(row) for row in rows]}


def _data_of(name: str) -> Callable[[Any], list[tuple[object, object]]]:
    """Reads a field of the items in `data`, each with its index, as vLLM replies."""

    def read(reply: Any) -> list[tuple[object, object]]:
        rows = reply.get("data") if isinstance(reply, dict) else None
        if not isinstance(rows, list):
            raise ValueError("has no list 'data'")
        items = [row if isinstance(row, dict) else {} for row in rows]
        return [(item.get("index"), item.get(name)) for item in items]

    return read


def _read_sglang(reply: Any) -> list[tuple[object, object]]:
    """A list of `embedding`s in the order of the answers."""
    if not isinstance(reply, list):
        raise ValueError("is not a list")
    return [
        (place, row.get("embedding") if isinstance(row, dict) else None) for place, row in enumerate(reply)
    ]


APIS = {
    "vllm-score": Api("score", _write_score, _data_of("score")),
    "vllm-classify": Api("/classify", _write_classify, _data_of("probs"), takes_text=True, takes_chat=True),
    "vllm-pooling": Api("/pooling", _write_input, _data_of("data"), takes_text=True, takes_chat=True),
    "sglang": Api("/classify", _write_sglang, _read_sglang, takes_text=True),
}


def read_scores(form: Form, reply: Any, count: int) -> list[float | str]:
    """The score of each answer, or why it has none; raises `ValueError` if the reply cannot be assigned."""
    rows = list(APIS[form.api].read(reply))
    if len(rows) != count:
        raise ValueError(f"has too {'few' if len(rows) < count else 'many'} scores: {len(rows)} of {count}")
    scores: dict[int, float | str] = {}
    for index, value in rows:
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < count or index in scores:
            raise ValueError(f"has the index {index!r:.40} among the scores of {count} answers")
        try:
            scores[index] = _score(form, value)
        except ValueError as error:
            scores[index] = str(error)
    return [scores[index] for index in range(count)]


def _score(form: Form, value: object) -> float:
    """One number of what an API returns for an answer: a number, classes, or classes of tokens."""
    if isinstance(value, list) and value and all(isinstance(one, list) for one in value):
        steps = [_of_classes(form, one) for one in value]
        mean = sum(one / len(steps) for one in steps)
        return {"last": steps[-1], "min": min(steps), "mean": mean}[form.steps]
    return _of_classes(form, value if isinstance(value, list) else [value])


def _of_classes(form: Form, values: Sequence[object]) -> float:
    """The only number, or the log-odds of a class, from its logits or its probabilities."""
    numbers = [_finite(one) for one in values]
    if len(numbers) == 1:
        return numbers[0]
    if not numbers or len(numbers) > MAX_CLASSES:
        raise ValueError(f"{len(numbers)} numbers for one answer: this is not a reward model")
    if not -len(numbers) <= form.class_ < len(numbers):
        raise ValueError(f"has {len(numbers)} classes, and reward_class is {form.class_}")
    if all(0 <= one <= 1 for one in numbers) and math.isclose(sum(numbers), 1, abs_tol=1e-3):
        numbers = [math.log(max(one, 1e-300)) for one in numbers]
    chosen = numbers.pop(form.class_)
    top = max(numbers)
    return _finite(chosen - top - math.log(sum(math.exp(one - top) for one in numbers)))


def _finite(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"the score is {'missing or NaN' if value is None else 'not a number'}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("the score is not finite")
    return number


class _Share:
    """One answer in a call about several; `stored` is done when its caller has processed the score."""

    request: Request

    def __init__(self, enqueue: "Callable[[_Share], None]") -> None:
        loop = asyncio.get_running_loop()
        self.scored: asyncio.Future[Completion] = loop.create_future()
        self.stored: asyncio.Future[None] = loop.create_future()
        self._enqueue = enqueue

    async def complete(self, request: Request) -> Completion:
        """Score an answer."""
        self.request = request
        self._enqueue(self)
        return await self.scored


@dataclass(slots=True)
class _Batch:
    """Requests of one problem that will be sent together."""

    requests: list[_Share] = field(default_factory=list)
    characters: int = 0


class RewardModel:
    """Scores answers with a server; the text of a completion is the score.

    `notify` receives each problem with the scores of a server once, and no more than `MOST_NOTICES` of them.
    """

    def __init__(self, server: Upstream, form: Form, *, notify: Notify = ignore) -> None:
        self.server, self.form = server, form
        self._api, self._notify = APIS[form.api], notify
        self._batches: dict[tuple[object, ...], _Batch] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._said: set[str] = set()

    @property
    def takes_lists(self) -> bool:
        """Whether a call can be about several answers; a conversation for the server to render is one."""
        return bool(self.form.template) or not self._api.takes_chat

    @property
    def connections(self) -> int:
        """How many answers may be scored concurrently."""
        return self.server.connections * (BATCH if self.takes_lists else 1)

    async def complete(self, request: Request) -> Completion:
        """Score the answer that is the last message of a request."""
        async with self.held_connection() as connection:
            return await connection.complete(request)

    @asynccontextmanager
    async def held_connection(self) -> AsyncIterator[_Share]:
        """A share of a connection, which no other call takes before the blocks of all its shares end."""
        share = _Share(self._enqueue)
        try:
            yield share
        finally:
            if not share.stored.done():
                share.stored.set_result(None)

    def _enqueue(self, share: _Share) -> None:
        """Add an answer to the call about its problem."""
        request = share.request
        key = (request.model, request.messages[:-1], msgspec.json.encode(request.extra, order="sorted"))
        batch = self._batches.setdefault(key, _Batch())
        batch.requests.append(share)
        batch.characters += len(request.messages[-1].content)
        full = len(batch.requests) >= BATCH or batch.characters >= BATCH_CHARACTERS
        if full or not self.takes_lists:
            self._send(key, batch)
        elif len(batch.requests) == 1:
            asyncio.get_running_loop().call_later(WINDOW, self._send, key, batch)

    async def close(self) -> None:
        """End the calls under way and close the connections."""
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await self.server.close()

    def _send(self, key: tuple[object, ...], batch: _Batch) -> None:
        """Send a batch, unless that was done when it was full."""
        if self._batches.get(key) is not batch:
            return
        del self._batches[key]
        call = asyncio.get_running_loop().create_task(self._score(batch.requests))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _score(self, batch: Sequence[_Share]) -> None:
        """Score the answers of a batch whose callers still wait; each gets a score or an error."""
        batch = [share for share in batch if not share.scored.done()]
        if not batch:
            return
        try:
            await self._call(batch)
        except (RefusedError, TooLongError) as error:
            if len(batch) == 1:
                _fail(batch, error)
            else:
                await asyncio.gather(*(self._score([share]) for share in batch))
        except Exception as error:
            _fail(batch, error)
        except asyncio.CancelledError:
            for share in batch:
                share.scored.cancel()
            raise

    async def _call(self, batch: Sequence[_Share]) -> None:
        first = batch[0].request
        rows = [one.request.messages for one in batch]
        fields = {"model": first.model, **self._api.write(self.form, rows)}
        body = encode_with_extra(fields, first.extra, RESERVED)
        async with self.server.held_connection() as connection:
            call = Call(self._api.path, lambda _: body, lambda reply: reply, first.model, REPLY_BYTES)
            done = await connection.send(call)
            for share, outcome in zip(batch, self._outcomes(batch, done), strict=True):
                if share.scored.done():
                    continue
                if isinstance(outcome, Completion):
                    share.scored.set_result(outcome)
                else:
                    share.scored.set_exception(outcome)
            await asyncio.gather(*(share.stored for share in batch))

    def _outcomes(self, batch: Sequence[_Share], done: Exchange[Any]) -> list[Completion | ModelError]:
        """The score of each answer, or the error that says what is wrong with it."""
        where = f"{self.server.address} (/{self._api.path.removeprefix('/')})"
        try:
            scores = read_scores(self.form, done.value, len(batch))
        except ValueError as error:
            return [self._error(f"{where}: the reply {error}", done.attempts) for _ in batch]
        usages = _share_usage(done.value, [one.request for one in batch])
        return [
            self._error(f"{where}: {score}", done.attempts)
            if isinstance(score, str)
            else Completion(
                repr(score), "stop", usage, model=one.request.model, latency=done.latency,
                attempts=done.attempts,
            )
            for one, score, usage in zip(batch, scores, usages, strict=True)
        ]  # fmt: skip

    def _error(self, message: str, attempts: int) -> GarbledError:
        if message not in self._said and len(self._said) < MOST_NOTICES:
            self._said.add(message)
            self._notify(f"{message}; the answers concerned have no score")
        error = GarbledError(message, attempts=attempts)
        error.cause = "no-score"
        return error


def _fail(batch: Iterable[_Share], error: Exception) -> None:
    for share in batch:
        if not share.scored.done():
            share.scored.set_exception(error)


def _share_usage(reply: Any, requests: Sequence[Request]) -> list[Usage]:
    """The tokens that the server reports, divided among the answers by their length; else an estimate."""
    sizes = [sum(estimate_tokens(one.content) for one in request.messages) for request in requests]
    if isinstance(reply, list):  # SGLang reports them for each answer
        infos = [row.get("meta_info") if isinstance(row, dict) else None for row in reply]
        counts = [_count(info.get("prompt_tokens")) if isinstance(info, dict) else None for info in infos]
        if len(counts) == len(sizes) and None not in counts:
            return [Usage(count or 0, 0) for count in counts]
    usage = reply.get("usage") if isinstance(reply, dict) else None
    total = None
    if isinstance(usage, dict):
        total = _count(usage.get("prompt_tokens"))
        total = _count(usage.get("total_tokens")) if total is None else total
    if total is None:
        return [Usage(size, 0, estimated=True) for size in sizes]
    whole, sums = sum(sizes) or 1, [sum(sizes[:k]) for k in range(len(sizes) + 1)]
    ends = [total * one // whole for one in sums]
    return [Usage(end - start, 0) for start, end in pairwise(ends)]


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= MAX_COUNT else None


async def check(model: RewardModel, name: str, extra: Mapping[str, object] | None = None) -> Completion:
    """Score one answer, or raise what is wrong with the server."""
    return await model.complete(Request(CANARY, name, template="canary", max_tokens=0, extra=extra or {}))
