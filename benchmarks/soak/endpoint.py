"""An endpoint that fails in every way, a bounded number of times a request, and writes down all it is asked.

A body is refused at most `MOST` times in its life, fewer than a client tries: in the end everybody gets
through, and the verdict depends on the prompt alone. One line a request goes into the log: digest of the
prompt, digest of the body, who asked, when it came, when it was over, and how.
"""

import asyncio
import json
import random
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from aiohttp import web
from verdicts import verdict

from caps.core.types import Message
from caps.journal.records import prompt_digest
from caps.testing import Half, Hang, Raw, Reply, Reset, ScriptedEndpoint, Status, is_judge
from caps.testing.endpoint import Behaviour

MOST = 3
PAID, UNHEARD = "paid", "unheard"  # a reply that arrived, and one whose asker was gone
UNREADABLE = (
    "I would rather not choose between these two.",
    "",
    "<winner>C</winner>\n<confidence>MAYBE</confidence>",
    "A < B? \\boxed{A} \ud83e",  # half a surrogate pair, as some servers cut it
)


def status(code: int, headers: dict[str, str] | None = None) -> Status:
    return Status(code, {"error": {"message": f"on purpose, {code}", "type": "unruly"}}, headers or {})


def soon() -> Status:
    return status(429, {"Retry-After": str(random.choice((0, 1, 0.3)))})


FAULTS: dict[str, tuple[int, Callable[[], Behaviour]]] = {
    "429": (30, soon),
    "429 ms": (10, lambda: status(429, {"retry-after-ms": "250"})),
    "500": (15, lambda: status(500)),
    "503": (10, lambda: status(503)),
    "529": (5, lambda: status(529)),
    "reset": (15, Reset),
    "broken off": (15, Half),
    "cut JSON": (10, lambda: Raw(b'{"model": "stub", "choices": [{"mess')),
    "garbage": (10, lambda: Raw(b"<html>\x00\xff 502 behind a proxy</html>")),
    "silence": (1, Hang),
}


class Endpoint(ScriptedEndpoint):
    """The endpoint; `share` of the bodies meet faults."""

    def __init__(self, log: str, seed: int, share: float) -> None:
        super().__init__(self._fate, keep=False)
        self._log = Path(log).open("w", buffering=1)  # noqa: SIM115  # until it is killed
        self._seed, self._share = seed, share
        self._refused: dict[str, int] = {}
        self._ends: dict[int, str] = {}

    async def respond(self, request: web.Request, body: dict[str, Any], number: int) -> web.StreamResponse:
        """Answer a judge's request late, and log how it ended."""
        if not is_judge(body):
            return await super().respond(request, body, number)
        came = time.time()
        await asyncio.sleep(_latency())
        gone = request.transport is None or request.transport.is_closing()
        try:
            return await super().respond(request, body, number)
        finally:
            kind = self._ends.pop(number)
            messages = (Message(message["role"], message["content"]) for message in body["messages"])
            digest, who = (
                prompt_digest(messages)[:24],
                request.headers.get("Authorization", "? nobody").split()[1],
            )
            end = UNHEARD if gone and kind == PAID else kind
            self._log.write(f"{digest} {_key(body)} {who} {came:.4f} {time.time():.4f} {end}\n")

    def _fate(self, body: dict[str, Any], number: int) -> Behaviour:
        if not is_judge(body):
            return Reply("OK")
        key = _key(body)
        chance = random.Random(f"{self._seed}/{key}")
        words = self._words(body, chance)
        refused = self._refused.get(key, 0)
        if refused >= self._troubles(chance):
            self._ends[number] = PAID
            return Reply(words, usage={"prompt_tokens": 900, "completion_tokens": len(words) // 4})
        self._refused[key] = refused + 1
        kind = chance.choices([*FAULTS], [weight for weight, _ in FAULTS.values()], k=MOST)[refused]
        self._ends[number] = kind
        return FAULTS[kind][1]()

    def _troubles(self, chance: random.Random) -> int:
        return 0 if chance.random() >= self._share else chance.choice((1, 1, 1, 2, 2, MOST))

    def _words(self, body: dict[str, Any], chance: random.Random) -> str:
        """The verdict; of some prompts only a further draw, at a temperature, can be read."""
        prompt = "".join(message["content"] for message in body["messages"])
        spoiled = (
            random.Random(f"{self._seed}/{prompt}").random() < self._share / 4 and not body["temperature"]
        )
        return chance.choice(UNREADABLE) if spoiled else verdict(prompt)


def _key(body: dict[str, Any]) -> str:
    return sha256(json.dumps(body).encode()).hexdigest()[:24]


def _latency() -> float:
    """Mostly tens of milliseconds, now and then seconds."""
    return random.uniform(1, 4) if random.random() < 0.001 else random.uniform(0.005, 0.06)
