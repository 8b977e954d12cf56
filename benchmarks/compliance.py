"""How judges keep to the form a prompt asks for: verdicts that can be read, and that carry the code.

Run it with `python -m benchmarks.compliance CASES --model FILE.gguf|embedded [--reply tags]`: the first two
candidates of every case are compared. With `--save` the replies are kept, and read again without a model by
`--read`. `--tokens` only counts what the prompts cost.
"""

import argparse
import asyncio
import json
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.request import Request, urlopen

from platformdirs import user_cache_path
from rich.console import Console
from rich.table import Table

from caps.building import load_templates, make_prepare
from caps.core.types import Ask, Case, Level, Pairing
from caps.datasets.imports import open_cases
from caps.judging.base import PreparedCase
from caps.judging.llm import JudgeSettings, JudgingModel, LlmJudge
from caps.models.embedded import EmbeddedModel, LlamaServer
from caps.models.weights import default_weights
from caps.prompts.read import Imitation, imitations, read_reply


@dataclass(frozen=True, slots=True)
class Said:
    """A reply to one pair, and what its case needs to be read."""

    case: str
    reply: str
    finish: str
    nonce: str
    code: str
    imitated: tuple[Imitation, ...]
    prompt_tokens: int
    output_tokens: int
    seconds: float


def pairs(path: str, limit: int) -> list[PreparedCase]:
    found = [case for case in open_cases(path) if isinstance(case, Case) and len(case.candidates) > 1]
    prepare = make_prepare()
    return [prepare(case) for case in found[:limit]]


async def ask_all(
    prepared_cases: list[PreparedCase], model: EmbeddedModel, ask: Ask, options: argparse.Namespace
) -> list[Said]:
    """Ask about every pair."""
    judging_model = JudgingModel(model, "judge")
    settings = JudgeSettings(reply=options.reply, max_tokens=options.max_tokens)
    judge, found = LlmJudge(judging_model, load_templates(), settings), []
    for prepared in prepared_cases:
        texts = [
            prepared.case.problem.text,
            *(prepared.evidence.view(one, ask.level) for one in ask.entrants),
        ]
        started = time.perf_counter()
        done = await model.complete(judge.request(prepared, ask))
        found.append(
            Said(
                prepared.case.id, done.text, done.finish, prepared.nonce, prepared.code,
                tuple({one for text in texts for one in imitations(text, ask)}),
                done.usage.prompt, done.usage.output, round(time.perf_counter() - started, 2),
            )
        )  # fmt: skip
        if options.save:
            with options.save.open("a") as file:
                file.write(json.dumps(asdict(found[-1])) + "\n")
    await model.close()
    return found


def shares(said: list[Said], ask: Ask) -> Table:
    """The shares of replies that can be read, that carry the code, and that count."""
    table = Table("replies", "cut", "readable", "with the code", "counted", "tokens read", "written")
    if not said:
        return table
    readable = bound = counted = 0
    for one in said:
        words = {"truncated": one.finish == "length", "nonce": one.nonce, "code": one.code}
        reading = read_reply(ask, one.reply, **words)
        strict = read_reply(ask, one.reply, **words, imitated=one.imitated)
        readable += reading.answer is not None
        bound += reading.bound
        counted += strict.answer is not None
    cut = sum(one.finish == "length" for one in said)
    totals = (sum(one.prompt_tokens for one in said), sum(one.output_tokens for one in said))
    table.add_row(
        str(len(said)), str(cut), *(f"{count / len(said):.2f}" for count in (readable, bound, counted)),
        *(f"{total / len(said):.0f}" for total in totals),
    )  # fmt: skip
    return table


def count_tokens(weights: Path) -> Table:
    """Tokens of every template without its texts, by the tokeniser of the model."""
    table = Table("template", "tokens")
    with LlamaServer(weights, context=256) as server:
        for name, text in sorted(load_templates().items()):
            words = re.sub(r"\{\w+\}", "", text.replace("{code}", "k7f3"))
            request = Request(  # noqa: S310  (our own server)
                server.url.removesuffix("/v1") + "/tokenize",
                json.dumps({"content": words}).encode(),
                {"Content-Type": "application/json"},
            )
            with urlopen(request) as answer:  # noqa: S310
                table.add_row(name, str(len(json.load(answer)["tokens"])))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="?")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--reply", default="free", choices=["free", "tags"])
    parser.add_argument("--level", default="partial", choices=["partial", "full"])
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--limit", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--read", type=Path)
    parser.add_argument("--tokens", action="store_true")
    options = parser.parse_args()
    ask = Pairing(0, 1, Level[options.level.upper()])
    if options.read:
        said = [Said(**json.loads(line)) for line in options.read.read_text().splitlines()]
        Console().print(shares(said, ask))
        return
    weights = default_weights(user_cache_path("caps")) if options.model == "embedded" else Path(options.model)
    if options.tokens:
        Console().print(count_tokens(weights))
        return
    model = EmbeddedModel(weights, slots=1, context=4096, threads=options.threads)
    prepared_cases = pairs(options.cases, options.limit)
    Console().print(shares(asyncio.run(ask_all(prepared_cases, model, ask, options)), ask))


if __name__ == "__main__":
    main()
