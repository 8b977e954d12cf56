"""The endpoint all tools share, in a process of its own: it counts what they ask by one rule for all.

A token is four characters of a message's content, whoever sends it; a reply's likewise. A judge's call takes

    fixed + new prompt tokens / reading + reply tokens / writing        (seconds)

on one of a limited number of slots, first come first served. New are the tokens that a prefix cache has not
seen: blocks of 16 tokens, never evicted, as vLLM and SGLang keep them. Candidates are handed out at once.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from urllib.request import urlopen

from aiohttp import web

from caps.testing import Raw, ScriptedEndpoint, endpoint_process
from peers.answers import Bench, Reply
from peers.pools import N, marked_cases

CHARACTERS = 4
BLOCK = 16 * CHARACTERS


@dataclass(frozen=True, slots=True)
class Latency:
    """What a call costs in time, and how many run at once."""

    fixed: float = 0.03
    reading: float = 25_000
    writing: float = 1_000
    slots: int = 64

    def seconds(self, new: int, written: int) -> float:
        """How long one call holds its slot."""
        return self.fixed + new / self.reading + written / self.writing

    def __str__(self) -> str:
        return (
            f"{1000 * self.fixed:.0f} ms, 1 s for {self.reading:,.0f} prompt tokens that no prefix cache has,"
            f" 1 s for {self.writing:,.0f} tokens of the reply, {self.slots} calls at once"
        )


class Prefixes:
    """The prompts seen so far, as a prefix cache knows them."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def new(self, prompt: str) -> int:
        """Tokens of a prompt that were not there before."""
        place, key, known = 0, 0, True
        for place in range(0, len(prompt) - BLOCK + 1, BLOCK):
            key = hash((key, prompt[place : place + BLOCK]))
            if known and key not in self._seen:
                known, first = False, place
            self._seen.add(key)
        return tokens(len(prompt) - (len(prompt) // BLOCK * BLOCK if known else first))


def tokens(characters: int) -> int:
    """Tokens of so many characters, rounded up."""
    return -(-characters // CHARACTERS)


class Counter:
    """What was asked: calls and tokens by kind and domain, and how many calls were in flight."""

    def __init__(self) -> None:
        self.sums: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.prefixes = Prefixes()
        self.most = self.now = 0

    def add(self, body: Mapping[str, Any], reply: Reply) -> tuple[int, int]:
        """Enter a call; its new prompt tokens and the tokens of its reply."""
        prompt = "\n".join(str(message["content"]) for message in body["messages"])
        read, written = tokens(len(prompt)), sum(tokens(len(text)) for text in reply.texts)
        new = self.prefixes.new(prompt) if reply.kind == "judge" else read
        for name in (reply.kind, f"{reply.kind} {reply.domain}"):
            for what, amount in (("calls", 1), ("prompt", read), ("new", new), ("written", written)):
                self.sums[name][what] += amount
        return new, written


def completion(body: Mapping[str, Any], reply: Reply) -> dict[str, Any]:
    """The reply as a chat completion."""
    prompt = sum(len(str(message["content"])) for message in body["messages"])
    choices: list[dict[str, Any]] = [
        {"index": i, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        for i, text in enumerate(reply.texts)
    ]
    if reply.letter is not None:
        top = [{"token": token, "logprob": value, "bytes": None} for token, value in reply.letter.items()]
        best = max(top, key=lambda one: float(one["logprob"] or 0))
        choices[0]["logprobs"] = {"content": [{**best, "top_logprobs": top}]}
    read, written = tokens(prompt), sum(tokens(len(text)) for text in reply.texts)
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return {
        "id": "stub",
        "object": "chat.completion",
        "created": 0,
        "model": "stub",
        "choices": choices,
        "usage": usage,
    }


class CountingEndpoint(ScriptedEndpoint):
    """The chat endpoint, and `/tally`, which tells what was counted and starts anew."""

    def __init__(self, bench: Bench, latency: Latency | None) -> None:
        super().__init__(self._answer, keep=False)
        self._bench, self._latency = bench, latency
        self._slots = asyncio.Semaphore(latency.slots if latency else 1)
        self._counter = Counter()

    async def _answer(self, body: Mapping[str, Any], _: int) -> Raw:
        counter, reply = self._counter, self._bench.reply(body)
        new, written = counter.add(body, reply)
        if self._latency is not None and reply.kind == "judge":
            counter.now += 1
            counter.most = max(counter.most, counter.now)
            async with self._slots:
                await asyncio.sleep(self._latency.seconds(new, written))
            counter.now -= 1
        return Raw(json.dumps(completion(body, reply)).encode())

    def add_routes(self, app: web.Application) -> None:
        """Tell what was counted."""

        async def tally(_: web.Request) -> web.Response:
            counter, self._counter = self._counter, Counter()
            return web.json_response({"most": counter.most, **counter.sums})

        app.router.add_get("/tally", tally)


def make(count: int, n: int, latency: Mapping[str, Any] | None) -> CountingEndpoint:
    """The endpoint with so many pools."""
    return CountingEndpoint(Bench(marked_cases(count, n=n)), None if latency is None else Latency(**latency))


@contextmanager
def endpoint(count: int, latency: Latency | None, *, n: int = N) -> Iterator["Running"]:
    """Run the endpoint with so many pools."""
    with endpoint_process("peers.endpoint:make", count, n, latency and asdict(latency)) as url:
        yield Running(url.removesuffix("/v1"))


@dataclass(frozen=True, slots=True)
class Running:
    """An endpoint under way."""

    address: str

    @property
    def url(self) -> str:
        """Where chat clients go."""
        return f"{self.address}/v1"

    def tally(self) -> dict[str, Any]:
        """What was counted since the last time."""
        with urlopen(f"{self.address}/tally") as response:  # noqa: S310
            return dict(json.load(response))
