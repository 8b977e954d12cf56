"""Small cases whose candidates state their quality, and judges that read it."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from caps.core.types import Case
from caps.datasets.case_files import parse_case
from caps.testing.endpoint import Reply

QUALITY = re.compile(r"quality=([0-9.]+)")


def case_line(name: str, qualities: Sequence[float], **more: object) -> str:
    """A math case with one candidate for each quality, all with different answers; the best is right."""
    best = max(qualities)
    candidates = [
        {
            "text": f"I reckon, with quality={quality}, that it is \\boxed{{{answer}}}",
            "correct": quality == best,
        }
        for answer, quality in enumerate(qualities)
    ]
    row = {"id": name, "domain": "math", "problem": f"What is it, {name}?", "candidates": candidates, **more}
    return json.dumps(row)


def spread(count: int, start: int = 0) -> list[float]:
    """Different qualities in a scrambled order."""
    return [round(((place + start) * 7 % count + 1) / (count + 1), 4) for place in range(count)]


def write_cases(path: Path, count: int, n: int = 16, **more: object) -> Path:
    """Write a file of cases with `n` candidates each; returns its path."""
    lines = (case_line(f"case {number}", spread(n, number), **more) + "\n" for number in range(count))
    path.write_text("".join(lines))
    return path


def cases(count: int, n: int = 8) -> list[Case]:
    """The same cases, parsed."""
    return [
        parse_case(case_line(f"case {number}", spread(n, number)), default_id="") for number in range(count)
    ]


def better_quality_wins(body: dict[str, Any], number: int = 0) -> Reply:  # noqa: ARG001
    """Reply to a judge's prompt in the tags that it asks for: the higher `quality=0.7` wins."""
    prompt = str(body["messages"][0]["content"])
    shown = [float(quality) for quality in QUALITY.findall(prompt)]
    if not shown and "<winner>" in prompt:  # the example of the documents: 17 * 23
        side = "B" if "391" in prompt.partition("BEGIN CANDIDATE B")[2] else "A"
        return Reply(f"<winner>{side}</winner>\n<confidence>HIGH</confidence>")
    if not shown and "BEGIN CANDIDATE" not in prompt:
        return Reply("OK")
    shown = shown or [0.5, 0.5]  # nothing tells them apart
    if "<rating_A>" in prompt:
        return Reply(f"<rating_A>{_rating(shown[0])}</rating_A>\n<rating_B>{_rating(shown[1])}</rating_B>")
    if "<rating>" in prompt:
        return Reply(f"<rating>{_rating(shown[0])}</rating>")
    if "<best>" in prompt:
        return Reply(f"<best>{1 + shown.index(max(shown))}</best>")
    winner = "TIE" if shown[0] == shown[1] else "A" if shown[0] > shown[1] else "B"
    return Reply(f"Both were read.\n<winner>{winner}</winner>\n<confidence>HIGH</confidence>")


def stated_quality(text: str) -> float:
    """The quality that a candidate of these cases states."""
    return float(QUALITY.findall(text)[0].rstrip("."))


def judge_by_quality(problem: object, a: str, b: str) -> str:  # noqa: ARG001
    """A judge as a Python function: the higher `quality=0.7` wins."""
    first, second = stated_quality(a), stated_quality(b)
    return "TIE" if first == second else "A" if first > second else "B"


judge_by_quality.full_views = True  # type: ignore[attr-defined]


def _rating(quality: float) -> int:
    return 1 + round(9 * quality)
