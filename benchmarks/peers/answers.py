"""The judge of the benchmark: from a chat request to the reply, in the words each tool can read. SIMULATED.

What it believes of a candidate is the project's synthetic judge, the same for everyone: verdicts for those
who ask for verdicts, ratings on their own scale for those who ask for ratings. Whoever asks for reasons first
gets 400 characters of them. A request that shows no candidate is for one: it gets the pool's, in turn.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from caps.core.types import Level, Pairing, Rating, Solo, Verdict
from caps.judging.simulated import JudgeModel, SimulatedJudge, judge_of
from peers.pools import MARK, Marked

JUDGE = judge_of(0.8, shared_bias=0.5)
REASONS = ("Both were read with care, step by step, and held against the problem. " * 6)[:392]
LETTERS = [chr(ord("A") + place) for place in range(20)]  # of llm-verifier, best first
CODE = re.compile(r"(?:write A|as in 1)-([0-9a-z]+)")
LOOK = re.compile(r"look (\d+)")


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes back: texts, and the distribution of the one token where somebody asked for it."""

    kind: str
    domain: str
    texts: Sequence[str]
    letter: Mapping[str, float] | None = None


class Bench:
    """Everyone's judge and writer: it knows the pools."""

    def __init__(self, cases: Sequence[Marked], model: JudgeModel = JUDGE, seed: int = 3) -> None:
        self._cases = cases
        self._judges = [
            SimulatedJudge(model, one.pool.entrants, one.pool.correct, seed=seed, case=one.pool.number)
            for one in cases
        ]
        self._drawn: Counter[int] = Counter()
        self._looks: Counter[int] = Counter()

    def reply(self, body: Mapping[str, Any]) -> Reply:
        """Answer a chat request."""
        messages = body["messages"]
        text = "\n".join(str(message["content"]) for message in messages)
        marks = [(int(found[1]), found[2]) for found in MARK.finditer(text)]
        number, shown = marks[0][0], [int(one) for _, one in marks if one is not None]
        domain = self._cases[number].case.domain
        if not shown:
            return Reply("generation", domain, self._candidates(number, int(body.get("n") or 1)))
        draw = self._draw(body, text)
        if len(shown) == 1:
            return Reply("judge", domain, [self._rated(number, shown[0], draw, body, text)])
        return self._compared(number, Pairing(shown[0], shown[1], _level(text), draw), body, text)

    def _candidates(self, number: int, count: int) -> list[str]:
        pool = self._cases[number].case.candidates
        start = self._drawn[number]
        self._drawn[number] += count
        return [pool[(start + i) % len(pool)].text for i in range(count)]

    def _draw(self, body: Mapping[str, Any], text: str) -> int:
        """Sampled replies differ from look to look; those at temperature 0 do not."""
        if body["messages"][-1]["role"] == "assistant":
            return int(LOOK.findall(text)[-1])
        if body.get("seed") is not None or not body.get("temperature"):
            return int(body.get("seed") or 0)
        self._looks[hash(text)] += 1
        return self._looks[hash(text)] - 1

    def _rated(self, number: int, one: int, draw: int, body: Mapping[str, Any], text: str) -> str:
        rating = self._judges[number].answer(Solo(one, Level.FULL, draw))
        assert isinstance(rating, Rating)  # noqa: S101
        if body.get("response_format"):
            return json.dumps({"score": rating.value, "reasoning": REASONS})
        said = f"{rating.value:g}{_code(text)}"
        return f"{REASONS}\n<rating>{said}</rating>" if "<rating>" in text else said

    def _compared(self, number: int, ask: Pairing, body: Mapping[str, Any], text: str) -> Reply:
        scored, rated = "<score_A>" in text, "<rating_A>" in text
        dialect = "ratings" if scored or rated else "verdicts"
        verdict = self._judges[number].answer(Pairing(ask.a, ask.b, ask.level, ask.draw, dialect))
        assert isinstance(verdict, Verdict)  # noqa: S101
        domain, a, b = self._cases[number].case.domain, verdict.a, verdict.b
        if scored and body["messages"][-1]["role"] == "assistant":
            letters = _letters(a if text.rstrip().endswith("<score_A>") else b)
            return Reply("judge", domain, [max(letters, key=lambda one: letters[one])], letters)
        winner = "A" if a > b else "B" if b > a else "TIE"
        if scored:
            said = f"(look {ask.draw})\n<score_A> {_letter(a)} </score_A>\n<score_B> {_letter(b)} </score_B>"
        elif rated:
            code = _code(text)
            said = f"<rating_A>{a:g}{code}</rating_A>\n<rating_B>{b:g}{code}</rating_B>"
        elif "<winner>" in text:
            sure = "HIGH" if abs(a - b) > 3 else "LOW"
            said = f"<winner>{winner}{_code(text)}</winner>\n<confidence>{sure}</confidence>"
        else:
            said = f"Winner: {winner}"
        return Reply("judge", domain, [f"{REASONS}\n{said}"])


def _code(text: str) -> str:
    """The code that our own prompts ask for after a verdict."""
    found = CODE.findall(text)
    return f"-{found[-1]}" if found else ""


def _level(text: str) -> Level:
    """Our own screening prompt says that it shows parts."""
    return Level.PARTIAL if "You see parts of each" in text else Level.FULL


def _letter(rating: float) -> str:
    return LETTERS[min(19, max(0, round(20 - 2 * rating)))]


def _letters(rating: float) -> dict[str, float]:
    """Most of the mass on one letter, some on its neighbours; as log-probabilities."""
    place = LETTERS.index(_letter(rating))
    near = {LETTERS[i]: 0.1 for i in (place - 1, place + 1) if 0 <= i < 20}
    near[LETTERS[place]] = 1 - sum(near.values())
    return {letter: math.log(share) for letter, share in near.items()}
