"""How a model keeps to the form that prompts ask for, and what asking again costs.

    python -m benchmarks.compliance --model FILE.gguf|embedded [--prompts DIR] [--save FILE]
    python -m benchmarks.compliance --read FILE
    python -m benchmarks.compliance --labelled
    python -m benchmarks.compliance --tokens

The first asks about every case of `compliance.jsonl` (or `--cases`) at several temperatures: a pair, a rating
and the best of all. A reply that cannot be read is asked for again, as in a run. With `--save` every reply is
kept, and read again without a model by `--read`. `--prompts` is a folder with another wording of the prompts.
`--labelled` reads the recorded replies of `tests/prompts/replies.jsonl`, whose right readings are known.
`--tokens` counts what the prompts cost without their texts.
"""

import argparse
import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

from platformdirs import user_cache_path
from rich.console import Console
from rich.table import Table

from caps.core.types import Ask, Case, Group, Level, Pairing, Solo
from caps.datasets.imports import open_cases
from caps.judging.base import PreparedCase
from caps.judging.llm import JudgeSettings, JudgingModel, LlmJudge
from caps.models.base import Completion, Request
from caps.models.embedded import EmbeddedModel, LlamaServer
from caps.models.weights import default_weights
from caps.prompts.read import Imitation, Reading, imitations, read_reply
from caps.session.parts import load_templates, make_prepare

CASES = Path(__file__).with_name("compliance.jsonl")
LABELLED = Path(__file__).parents[1] / "tests" / "prompts" / "replies.jsonl"
TEMPERATURES = (0.0, 0.3, 0.7, 1.0)
ASKS: dict[str, Ask] = {
    "pair": Pairing(0, 1, Level.FULL),
    "ratings": Pairing(0, 1, Level.FULL, dialect="ratings"),
    "solo": Solo(0, Level.FULL),
    "group": Group((0, 1, 2), Level.FULL),
}
# The corpus has a group of four.
LABELLED_ASKS = ASKS | {"group": Group((0, 1, 2, 3), Level.FULL)}


@dataclass(frozen=True, slots=True)
class Said:
    """A reply, which try of its ask it is, and what is needed to read it."""

    case: str
    ask: str
    temperature: float
    attempt: int
    reply: str
    finish: str
    nonce: str
    code: str
    imitated: tuple[Imitation, ...]
    prompt_tokens: int
    output_tokens: int

    @property
    def reading(self) -> Reading:
        truncated = self.finish == "length"
        return read_reply(
            ASKS[self.ask], self.reply, truncated=truncated, nonce=self.nonce, code=self.code,
            imitated=self.imitated,
        )  # fmt: skip


class RecordingModel:
    """A model that keeps its replies."""

    def __init__(self, model: EmbeddedModel) -> None:
        self._model = model
        self.replies: list[tuple[Request, Completion]] = []

    async def complete(self, request: Request) -> Completion:
        completion = await self._model.complete(request)
        self.replies.append((request, completion))
        return completion


async def ask_all(model: EmbeddedModel, options: argparse.Namespace) -> list[Said]:
    """Ask about every case, again where a reply cannot be read."""
    prepare, templates, said = make_prepare(), load_templates(options.prompts), list[Said]()
    cases = [case for case in open_cases(str(options.cases)) if isinstance(case, Case)]
    for number, prepared in enumerate(map(prepare, cases[: options.limit])):
        for turn, name in enumerate(options.asks):
            temperature = TEMPERATURES[(number + turn) % len(TEMPERATURES)]
            settings = JudgeSettings(max_tokens=options.max_tokens, temperature=temperature)
            recording = RecordingModel(model)
            judge = LlmJudge(JudgingModel(recording, "judge"), templates, settings)
            await judge.rule(prepared, ASKS[name])
            rows = list(attempts(prepared, name, temperature, recording.replies))
            said += rows
            if options.save:
                with options.save.open("a") as file:
                    file.writelines(json.dumps(asdict(row)) + "\n" for row in rows)
    await model.close()
    return said


def attempts(
    prepared: PreparedCase, name: str, temperature: float, replies: Sequence[tuple[Request, Completion]]
) -> Iterable[Said]:
    ask = ASKS[name]
    texts = [prepared.case.problem.text, *prepared.evidence.shown(ask)]
    imitated = tuple(sorted({kind for text in texts for kind in imitations(text, ask)}))
    for attempt, (_, completion) in enumerate(replies, start=1):
        yield Said(
            prepared.case.id, name, temperature, attempt, completion.text, completion.finish,
            prepared.nonce, prepared.code, imitated, completion.usage.prompt, completion.usage.output,
        )  # fmt: skip


def shares(said: Sequence[Said]) -> Table:
    """By kind of ask: replies to the first try that are read and carry the code, and what is left later.

    `again` are the tokens of all further tries over those of the first ones.
    """
    table = Table(
        "ask",
        "first tries",
        "cut",
        "read",
        "with the code",
        "unread after 1",
        "after 2",
        "after all",
        "again",
    )
    for name in (*dict.fromkeys(row.ask for row in said), "all"):
        rows = [row for row in said if name in (row.ask, "all")]
        first = [row for row in rows if row.attempt == 1]
        tries = Counter((row.case, row.ask) for row in rows)
        read_by = {(row.case, row.ask): row.attempt for row in rows if row.reading.answer is not None}
        unread = [sum(read_by.get(key, 99) > most for key in tries) for most in (1, 2, 98)]
        tokens = {
            more: sum(row.prompt_tokens + row.output_tokens for row in rows if (row.attempt > 1) == more)
            for more in (False, True)
        }
        counts = (
            sum(row.finish == "length" for row in first),
            sum(row.reading.answer is not None for row in first),
            sum(row.reading.bound for row in first), *unread,
        )  # fmt: skip
        table.add_row(
            name, str(len(first)), *map(str, counts), f"+{tokens[True] / max(1, tokens[False]):.0%}"
        )
    return table


def labelled() -> Table:
    """By model, the recorded replies whose label is a clear verdict, and how many of them are not read."""
    table = Table("model", "form", "replies", "clear verdicts", "unread", "forms of the unread")
    entries = [json.loads(line) for line in LABELLED.read_text(encoding="utf-8").splitlines()]
    recorded = [entry for entry in entries if entry["source"] == "recorded"]
    for model, note in dict.fromkeys((entry["model"], entry["note"]) for entry in recorded):
        rows = [entry for entry in recorded if (entry["model"], entry["note"]) == (model, note)]
        clear = [entry for entry in rows if entry["expect"] is not None]
        unread = [
            entry for entry in clear
            if read_reply(
                LABELLED_ASKS[entry["ask"]], entry["reply"], truncated=entry.get("truncated", False),
                nonce="3f9c2a", code=entry.get("code"), imitated=entry.get("imitated", ()),
            ).answer is None
        ]  # fmt: skip
        forms = ", ".join(f"{form} {count}" for form, count in Counter(e["unread"] for e in unread).items())
        table.add_row(model, note, str(len(rows)), str(len(clear)), str(len(unread)), forms)
    return table


def count_tokens(weights: Path, prompts: Path | None) -> Table:
    """Tokens of every template without its texts, by the tokeniser of the model."""
    table = Table("template", "tokens")
    with LlamaServer(weights, context=256) as server:
        for name, text in sorted(load_templates(prompts).items()):
            words = re.sub(r"\{\w+\}", "", text.replace("{code}", "k7f3"))
            request = HttpRequest(  # noqa: S310  (our own server)
                server.url.removesuffix("/v1") + "/tokenize",
                json.dumps({"content": words}).encode(),
                {"Content-Type": "application/json"},
            )
            with urlopen(request) as answer:  # noqa: S310
                table.add_row(name, str(len(json.load(answer)["tokens"])))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=Path, default=CASES)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--prompts", type=Path)
    parser.add_argument("--asks", nargs="*", default=["pair", "solo", "group"], choices=ASKS)
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--limit", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--read", type=Path)
    parser.add_argument("--labelled", action="store_true")
    parser.add_argument("--tokens", action="store_true")
    options = parser.parse_args()
    if options.labelled:
        Console().print(labelled())
        return
    if options.read:
        Console().print(shares([Said(**json.loads(line)) for line in options.read.read_text().splitlines()]))
        return
    weights = default_weights(user_cache_path("caps")) if options.model == "embedded" else Path(options.model)
    if options.tokens:
        Console().print(count_tokens(weights, options.prompts))
        return
    model = EmbeddedModel(weights, slots=1, context=4096, threads=options.threads)
    Console().print(shares(asyncio.run(ask_all(model, options))))


if __name__ == "__main__":
    main()
