"""How much of its prompts a server finds in its prefix cache, of what their common beginnings allow.

A llama.cpp server counts the tokens that it took from its cache. What could be taken is computed from the
token ids of all prompts of a run: every token of a beginning that an earlier prompt of the run has too.

    python -m benchmarks.prefixes --cases 2 --candidates 6 --words 60
"""

import argparse
import asyncio
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

from caps import Candidate, Case, Problem
from caps.config import RunConfig
from caps.models.base import Completion, Request
from caps.models.embedded import LlamaServer
from caps.models.http import HttpModel
from caps.models.weights import default_weights
from caps.runner import Runner

STRATEGIES = ("caps-r", "posterior", "v1-infer")
WORDS = (
    "sum", "of", "these", "terms", "grows", "with", "each", "step", "so", "we", "check", "the", "remainder",
    "before", "adding", "next", "factor", "because", "square", "odd", "number", "leaves", "one", "divided",
)  # fmt: skip


def cases_of(count: int, candidates: int, tokens: int, seed: int = 7) -> list[Case]:
    """Problems with different answers, all of about the same length."""
    rng = Random(seed)

    def text(length: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(length))

    return [
        Case(
            str(number),
            Problem.of(f"Problem {number}: {text(tokens)}. What is it?"),
            tuple(Candidate(f"{text(tokens)}. So \\boxed{{{place}}}.") for place in range(candidates)),
            "math",
        )
        for number in range(count)
    ]


@dataclass
class Recording:
    """A model that keeps the prompts and the usage of all calls."""

    inner: HttpModel
    connections: int
    seen: list[tuple[str, Completion]] = field(default_factory=list)

    async def complete(self, request: Request) -> Completion:
        completion = await self.inner.complete(request)
        self.seen.append((request.messages[0].content, completion))
        return completion

    async def close(self) -> None:
        await self.inner.close()


def tokens_of(base: str, prompt: str) -> list[int]:
    """The token ids of a prompt as the server reads it, chat template included."""

    def post(path: str, body: dict) -> dict:
        data, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
        with urlopen(HttpRequest(base + path, data, kind)) as answer:  # noqa: S310  (our own server)
            return json.load(answer)

    shown = post("/apply-template", {"messages": [{"role": "user", "content": prompt}]})["prompt"]
    return post("/tokenize", {"content": shown, "add_special": True, "parse_special": True})["tokens"]


def shareable(prompts: list[list[int]]) -> int:
    """Tokens that need not be read again: all but the nodes of the tree that the prompts form."""
    nodes = 0
    previous: list[int] = []
    for prompt in sorted(prompts):
        common = next((i for i, (a, b) in enumerate(zip(previous, prompt, strict=False)) if a != b), None)
        nodes += len(prompt) - (min(len(previous), len(prompt)) if common is None else common)
        previous = prompt
    return sum(map(len, prompts)) - nodes


async def play(
    url: str, strategy: str, warm: str, slots: int, cases: list[Case]
) -> tuple[list[tuple[str, Completion]], float]:
    config = RunConfig(
        model="judge", base_url=(url,), strategy=strategy, warm_prefix=warm, reply="tags", journal=None,
        max_connections=slots, hard_evidence="off", views={"partial": "full"},
    )  # fmt: skip
    model = Recording(HttpModel(url, connections=slots), slots)
    started = time.perf_counter()
    async with Runner(config, model=model).session(probe=False) as session:
        outcomes = [outcome async for outcome in session.run(cases)]
    for outcome in outcomes:
        if outcome.failure is not None:
            raise SystemExit(outcome.failure)
    return model.seen, time.perf_counter() - started


def main() -> None:
    """Measure every strategy with and without the first wave."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=2)
    parser.add_argument("--candidates", type=int, default=6)
    parser.add_argument("--words", type=int, default=60, help="of a problem and of a candidate")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    options = parser.parse_args()
    weights = options.weights or default_weights(Path.home() / ".cache" / "caps")
    cases = cases_of(options.cases, options.candidates, options.words)
    names = ("strategy", "warm-prefix", "calls", "prompt", "cached", "share", "shareable", "of it", "seconds")
    print("| " + " | ".join(names) + " |\n|" + "---|" * len(names), flush=True)
    for strategy in options.strategies.split(","):
        for warm in ("off", "on"):
            with LlamaServer(
                weights, slots=options.slots, context=2048, threads=options.threads, name="judge"
            ) as server:  # a new one: its cache is empty
                seen, seconds = asyncio.run(play(server.url, strategy, warm, options.slots, cases))
                base = server.url.removesuffix("/v1")
                known = {prompt: tokens_of(base, prompt) for prompt in {prompt for prompt, _ in seen}}
            prompts = [known[prompt] for prompt, _ in seen]
            total = sum(done.usage.prompt for _, done in seen)
            cached = sum(done.usage.cached for _, done in seen)
            most = shareable(prompts)
            shares = (f"{cached / total:.2f}", f"{most:,}", f"{cached / most:.2f}", f"{seconds:.0f}")
            cells = (strategy, warm, str(len(seen)), f"{total:,}", f"{cached:,}", *shares)
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
