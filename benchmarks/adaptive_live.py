"""A real embedded model answers 20 questions with `--n auto`; the ledger against llama.cpp's own counters.

    python benchmarks/adaptive_live.py --most 6

Every request goes through the same server, generation and judging alike. Samples that were cancelled are
estimates, so totals are also given without them.
"""

import argparse
import asyncio
import re
import urllib.request
from pathlib import Path

from platformdirs import user_cache_path

from caps.config import Keys, RunConfig
from caps.core.types import Case, Problem
from caps.models.embedded import CONTEXT, LlamaServer
from caps.runner import Runner
from caps.solving import auto_solver

QUESTIONS = (
    ("Ina buys 3 bags of 12 oranges and gives 7 away. How many oranges does she have?", 29),
    ("A tram makes 9 trips a day with 40 seats. How many seats is that in 2 days?", 720),
    ("Tom reads 15 pages a day. How many pages does he read in 6 days?", 90),
    ("A rope of 48 metres is cut into 8 equal parts. How long is each part?", 6),
    ("Mia has 50 euros, buys 4 books at 9 euros each. How much money is left?", 14),
    ("A baker makes 24 rolls an hour for 5 hours and sells 100. How many are left?", 20),
    ("There are 7 rows of 11 chairs and 5 chairs are broken. How many chairs are fine?", 72),
    ("A tank holds 90 litres and is one third full. How many litres are missing?", 60),
    ("Jon walks 3 km to school and back, 5 days a week. How many km a week?", 30),
    ("A box has 6 red and twice as many blue pens. How many pens are in it?", 18),
    ("A train leaves at 9 and needs 4 hours and 30 minutes. How many minutes does it need?", 270),
    ("Eva is 8 and her brother is 3 times as old. How old are both together?", 32),
    ("A farmer has 5 fields with 20 trees each; 30 trees are cut. How many trees remain?", 70),
    ("Four friends share 36 sweets equally and each eats 2. How many has each left?", 7),
    ("A shirt costs 40 euros and is 25 percent off. What is its price?", 30),
    ("A pool is filled with 12 litres a minute. How many litres are in it after 15 minutes?", 180),
    ("Sam saves 20 euros a month and spends 60 after a year. How much is left?", 180),
    ("A class of 28 has 4 more girls than boys. How many boys are there?", 12),
    ("A car uses 6 litres for 100 km. How many litres does it use for 250 km?", 15),
    ("A film lasts 95 minutes and starts after 10 minutes of adverts. How many minutes in all?", 105),
)


def counters(url: str) -> tuple[int, int]:
    """Prompt tokens and written tokens as the server counts them."""
    with urllib.request.urlopen(url.removesuffix("/v1") + "/metrics") as reply:  # noqa: S310
        text = reply.read().decode()
    names = ("prompt_tokens_total", "tokens_predicted_total")
    prompt, written = (int(float(re.search(rf"^llamacpp:{name} (\S+)", text, re.M)[1])) for name in names)
    return prompt, written


async def answer(url: str, most: int, count: int) -> None:
    """Answer the questions, and compare the ledgers with the server."""
    config = RunConfig(
        model="embedded-model", base_url=(url,), samples="auto", max_n=most, preset="small", max_tokens=64,
        reply="tags", price_input=1.0, price_output=4.0,
    )  # fmt: skip
    runner = Runner(config, keys=Keys(), generating=True)
    before = counters(url)
    read = cached = written = cancelled = judged = samples = right = estimated = 0
    async with auto_solver(runner) as solver:
        for number, (text, truth) in enumerate(QUESTIONS[:count]):
            found = await solver.solve(Case(str(number), Problem.of(text), (), "math"))
            ledger = found.adapted.ledgers[0]
            verdicts = found.outcome.ledger.total()
            lost = ledger.cancelled_usage
            read += ledger.paid.prompt - lost.prompt + verdicts.billed
            cached += ledger.paid.cached + verdicts.cached
            written += ledger.paid.output - lost.output + verdicts.output
            estimated += lost.output
            cancelled, judged = cancelled + ledger.cancelled, judged + verdicts.calls
            samples += ledger.started
            chosen = found.sampled.case.candidates[found.outcome.selection.winner].text
            right += re.findall(r"-?\d+", chosen.replace(",", ""))[-1:] == [str(truth)]
            print(
                number,
                ledger.started,
                verdicts.calls,
                round(found.adapted.steps[-1].probability, 2),
                flush=True,
            )
    after = counters(url)
    processed, predicted = after[0] - before[0], after[1] - before[1]
    print(f"{count} questions, {samples} samples ({cancelled} cancelled), {judged} verdicts, {right} right")
    print(
        f"read by the ledger: {read}, {cached} of it cached, so {read - cached} processed; "
        f"llama.cpp: {processed}"
    )
    print(
        f"written by the ledger: {written}, and about {estimated} by those that were cancelled; "
        f"llama.cpp: {predicted}"
    )


def main() -> None:
    """Start the server and answer."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--most", type=int, default=6)
    parser.add_argument("--questions", type=int, default=len(QUESTIONS))
    parser.add_argument("--weights", type=Path, help="a GGUF file; default: the embedded model")
    given = parser.parse_args()
    weights = given.weights or next(user_cache_path("caps").glob("*.gguf"))
    with LlamaServer(weights, slots=2, context=CONTEXT // 2, threads=2) as server:
        asyncio.run(answer(server.url, given.most, given.questions))


if __name__ == "__main__":
    main()
