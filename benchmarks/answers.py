"""How well and how fast final answers of mathematics are compared.

    python benchmarks/answers.py                        # the generated pairs alone
    python benchmarks/answers.py --data FILE.jsonl      # agreement with labelled pairs, by source, as well
    python benchmarks/answers.py --data FILE.jsonl --explain

FILE has one pair a line: `{"gold", "pred", "equal", "source"?}`; `pred` may be a whole text, of which the
answer is taken as `caps grade` takes it. Beside our grader stands math-verify alone, with its own extraction.
Both run one after the other on the same pairs; the time is per pair, without the start of a worker.

Unequal pairs are generated from a seed (`unequal_pairs`): a value, and the same value changed by one digit, a
sign, a term, a factor, an end of an interval or a tiny amount. Any that counts as equal is a false positive.
"""

import argparse
import asyncio
import json
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from caps.core.types import Candidate, Case, Problem
from caps.grading.math import MathGrader

PAIRS = 2000
SHOWN = 70


class Result(NamedTuple):
    """The verdict on a pair, the layer that decided it, and the seconds it took."""

    equal: bool | None
    layer: str
    seconds: float


def unequal_pairs(count: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Pairs of different answers, close to each other in value or in writing."""
    rng = random.Random(seed)
    for place in range(count):
        yield _KINDS[place % len(_KINDS)](rng)


def _whole(rng: random.Random) -> tuple[str, str]:
    value = rng.choice([rng.randint(-99, 99), rng.randint(-(10**6), 10**6), rng.randint(10**18, 10**24)])
    return str(value), str(value + rng.choice([-1, 1, 10]))


def _decimal(rng: random.Random) -> tuple[str, str]:
    places = rng.randint(1, 12)
    value = rng.randint(1, 10**places)
    written = [f"{value // 10**places}.{one % 10**places:0{places}d}" for one in (value, value + 1)]
    return written[0], written[1] if value + 1 < 10**places else "1.5"


def _fraction(rng: random.Random) -> tuple[str, str]:
    above, below = rng.randint(1, 400), rng.randint(2, 400)
    other = Fraction(above + rng.choice([-1, 1]), below)
    return rf"\frac{{{above}}}{{{below}}}", rng.choice(
        [str(other), f"{other.numerator}/{other.denominator}", rf"-\frac{{{above}}}{{{below}}}"]
    )


def _rounded(rng: random.Random) -> tuple[str, str]:
    """A decimal fraction that is off in its last digit."""
    value = Fraction(rng.randint(1, 99), rng.choice([3, 7, 9, 11, 13, 17]) * rng.randint(1, 9) + 0)
    places = rng.randint(7, 12)
    scaled = round(value * 10**places) + rng.choice([-3, -2, 2, 3])
    return (
        f"{value.numerator}/{value.denominator}",
        f"{scaled // 10**places}.{scaled % 10**places:0{places}d}" if scaled > 0 else "0.5",
    )


def _root(rng: random.Random) -> tuple[str, str]:
    a, b, c = rng.randint(1, 9), rng.choice([2, 3, 5, 6, 7, 10, 11]), rng.randint(1, 9)
    return rf"{a}\sqrt{{{b}}}+{c}", rng.choice(
        [
            rf"{a + 1}\sqrt{{{b}}}+{c}",
            rf"{a}\sqrt{{{b}}}-{c}",
            rf"{a}\sqrt{{{b + 1}}}+{c}",
            f"{a * b**0.5 + c:.3f}",
        ]
    )


def _polynomial(rng: random.Random) -> tuple[str, str]:
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    expanded = [
        f"x^2+{a + b}x+{a * b + 1}",
        f"x^2+{a + b + 1}x+{a * b}",
        f"x^2-{a + b}x+{a * b}",
        f"x^3+{a + b}x+{a * b}",
    ]
    return f"(x+{a})(x+{b})", rng.choice(expanded)


def _trigonometry(rng: random.Random) -> tuple[str, str]:
    a = rng.randint(2, 9)
    pairs = [
        (rf"\sin {a}x", rf"\cos {a}x"),
        (rf"2\sin {a}x\cos {a}x", rf"\sin {a}x"),
        (rf"\sin^2 {a}x", rf"1+\cos^2 {a}x"),
    ]
    return rng.choice([*pairs, (rf"e^{{{a}x}}", rf"e^{{{a + 1}x}}"), (rf"\ln({a}x)", rf"{a}\ln x")])


def _tiny(rng: random.Random) -> tuple[str, str]:
    """Values that no short evaluation can tell apart."""
    power, a = rng.randint(15, 200), rng.randint(2, 9)
    pairs = [
        (rf"{a}+10^{{-{power}}}", str(a)), (rf"{a}^{{1/{a}^{{{power}}}}}", "1"), (f"x+10^{{-{power}}}", "x"),
        (rf"(1+10^{{-{power}}})x^{a}", f"x^{a}"), (rf"\sqrt{{10^{{{2 * power}}}+1}}", rf"10^{{{power}}}"),
        (rf"\sqrt{{{a}}}+10^{{-{power}}}", rf"\sqrt{{{a}}}"), (rf"\pi+10^{{-{power}}}", r"\pi"),
    ]  # fmt: skip
    return rng.choice(pairs)


def _interval(rng: random.Random) -> tuple[str, str]:
    low = rng.randint(-20, 20)
    high = low + rng.randint(1, 9)
    others = [
        f"({low}, {high}]",
        f"[{low}, {high + 1})",
        f"{low} < x < {high}",
        rf"x \ge {low}",
        f"[{low}, {high}]",
    ]
    return f"[{low}, {high})", rng.choice(others)


def _collection(rng: random.Random) -> tuple[str, str]:
    items = rng.sample(range(-50, 50), rng.randint(2, 5))
    changed = [*items[:-1], items[-1] + 100]
    kind = rng.choice(["{}", "()", ","])
    if kind == "()":
        return (
            f"({', '.join(map(str, items))})",
            f"({', '.join(map(str, rng.choice([items[::-1], changed])))})",
        )
    texts = [", ".join(map(str, one)) for one in (items, rng.choice([changed, items[:-1]]))]
    return (rf"\{{{texts[0]}\}}", rf"\{{{texts[1]}\}}") if kind == "{}" else (texts[0], texts[1])


def _matrix(rng: random.Random) -> tuple[str, str]:
    cells = [rng.randint(-9, 9) for _ in range(4)]
    other = list(cells)
    other[rng.randrange(4)] += rng.choice([-1, 1])
    rows = [(f"{a}&{b}", f"{c}&{d}") for a, b, c, d in (cells, other)]
    first, second = (r"\begin{pmatrix}" + r"\\".join(one) + r"\end{pmatrix}" for one in rows)
    return first, second


def _unit(rng: random.Random) -> tuple[str, str]:
    value = rng.randint(2, 99)
    units = rng.sample(["cm", "m", "km", "kg", "hours", "km/h", "m/s", "cm^2", "liters"], 2)
    return f"{value} {units[0]}", rng.choice([f"{value + 1} {units[0]}", f"{value} {units[1]}"])


def _percent(rng: random.Random) -> tuple[str, str]:
    value = rng.randint(2, 99)
    return rf"{value}\%", rng.choice(
        [f"{value + 1}%", str(Fraction(value, 10)), f"{value}{value}", f"0.00{value}"]
    )


def _mixed(rng: random.Random) -> tuple[str, str]:
    whole, below = rng.randint(2, 20), rng.randint(3, 9)
    return rf"{whole}\frac{{1}}{{{below}}}", rng.choice(
        [f"{whole}/{below}", f"{whole + 1} 1/{below}", f"{whole} 2/{below}"]
    )


def _equation(rng: random.Random) -> tuple[str, str]:
    a, b = rng.randint(2, 9), rng.randint(1, 9)
    others = [
        f"y = {a}x - {b}",
        f"f(x) = {a + 1}x + {b}",
        f"{a}x + {b} = 0",
        f"x = {a}y + {b}",
        f"{b} = {a}x + {b}",
    ]
    return rng.choice(
        [(f"y = {a}x + {b}", rng.choice(others)), (f"{a} = x + {b}", f"x + {b}"), (f"x < {a}", f"x > {a}")]
    )


def _complex(rng: random.Random) -> tuple[str, str]:
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    return f"{a}+{b}i", rng.choice([f"{a}-{b}i", f"{b + 10}+{a}i", str(a), f"({a}+{b}i)^2", f"{a}+{b}"])


_KINDS: Sequence[Callable[[random.Random], tuple[str, str]]] = (
    _whole, _decimal, _fraction, _rounded, _root, _polynomial, _trigonometry, _tiny, _interval, _collection,
    _matrix,    _unit, _percent, _mixed, _equation, _complex,
)  # fmt: skip


async def ours(pairs: Sequence[tuple[str, str]]) -> list[Result]:
    """Grade the second answer of each pair against the first, one after another."""
    grader = MathGrader(workers=1)
    await grader.equal(r"\sqrt{8}", r"2\sqrt{2}")  # starts the worker
    results = []
    for gold, text in pairs:
        case = Case("pair", Problem.of("?"), (), "math", extra={"answer": gold})
        started = time.perf_counter()
        grade = await grader.grade(case, Candidate(text))
        results.append(Result(grade.correct, grade.decided_by, time.perf_counter() - started))
    await grader.close()
    return results


def plain_math_verify(pairs: Sequence[tuple[str, str]]) -> list[Result]:
    """What math-verify says, with its defaults."""
    from math_verify import parse, verify  # noqa: PLC0415  # takes a second

    logging.disable(logging.CRITICAL)
    results = []
    for gold, text in pairs:
        started = time.perf_counter()
        equal = bool(verify(parse(gold), parse(text)))
        results.append(Result(equal, "", time.perf_counter() - started))
    return results


def agreement(rows: Sequence[dict[str, Any]], *, explain: bool) -> None:
    """Print how many labels each grader agrees with, by source."""
    pairs = [(row["gold"], row["pred"]) for row in rows]
    found, other = asyncio.run(ours(pairs)), plain_math_verify(pairs)
    sources = [str(row.get("source", "")).partition("@")[0].partition(" ")[0] for row in rows]
    labels = [row["equal"] for row in rows]
    print("| source | pairs | caps | math-verify |\n|---|---:|---:|---:|")
    for source in [*dict.fromkeys(sources), None]:
        places = [place for place, one in enumerate(sources) if source in (one, None)]
        agreed = [sum(one[place].equal is labels[place] for place in places) for one in (found, other)]
        print(f"| {source or 'all'} | {len(places)} | {agreed[0]} | {agreed[1]} |")
    mean = [1000 * sum(one.seconds for one in results) / len(results) for results in (found, other)]
    print(f"| ms a pair | | {mean[0]:.1f} | {mean[1]:.1f} |")
    print(f"\nlayers: {dict(Counter(one.layer or 'undecided' for one in found))}")
    if explain:
        for row, one in zip(rows, found, strict=True):
            if one.equal is not row["equal"]:
                print(f"{row['equal']}, ours {one.equal}: {row['gold']!r:.{SHOWN}} {row['pred']!r:.{SHOWN}}")


def false_positives(count: int, seed: int) -> int:
    """Print which of the generated unequal pairs count as equal; their number."""
    pairs = list(unequal_pairs(count, seed))
    found = asyncio.run(ours(pairs))
    wrong = [pair for pair, one in zip(pairs, found, strict=True) if one.equal]
    undecided = [pair for pair, one in zip(pairs, found, strict=True) if one.equal is None]
    mean = 1000 * sum(one.seconds for one in found) / len(found)
    print(f"{count} unequal pairs: {len(wrong)} equal, {len(undecided)} undecided, {mean:.1f} ms a pair")
    for pair in [*wrong, *undecided][:20]:
        print("  ", *pair, sep=" | ")
    return len(wrong)


def main() -> None:
    """Read the options, measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="labelled pairs, JSON lines")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="generated unequal pairs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--explain", action="store_true", help="print every disagreement with a label")
    options = parser.parse_args()
    if options.data:
        agreement([json.loads(line) for line in options.data.open()], explain=options.explain)
    raise SystemExit(1 if options.pairs and false_positives(options.pairs, options.seed) else 0)


if __name__ == "__main__":
    main()
