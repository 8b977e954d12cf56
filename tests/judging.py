"""A judge server that reads `quality=0.7` in what it is shown, and cases whose candidates carry it."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from caps import Case
from caps.datasets.case_files import parse_case
from caps.models.base import Request
from models.server import Reply

QUALITY = re.compile(r"quality=([0-9.]+)")


def case_line(name: str, qualities: Sequence[float], **more: object) -> str:
    """A math case with one candidate for each quality, all with different answers; the best is right."""
    best = max(qualities)
    candidates = [
        {"text": f"I reckon, with quality={q}, that it is \\boxed{{{i}}}", "correct": q == best}
        for i, q in enumerate(qualities)
    ]
    row = {"id": name, "domain": "math", "problem": f"What is it, {name}?", "candidates": candidates, **more}
    return json.dumps(row)


def spread(count: int, start: int = 0) -> list[float]:
    """Different qualities in a scrambled order."""
    return [round(((i + start) * 7 % count + 1) / (count + 1), 4) for i in range(count)]


def write_cases(path: Path, count: int, n: int = 16, **more: object) -> Path:
    """A file of cases."""
    path.write_text("".join(case_line(f"case {i}", spread(n, i), **more) + "\n" for i in range(count)))
    return path


def better_quality_wins(body: dict, number: int = 0) -> Reply:
    """Answer whatever is asked in the tags it is asked in."""
    prompt = body["messages"][0]["content"]
    shown = [float(q) for q in QUALITY.findall(prompt)]
    if not shown and "<winner>" in prompt:  # the documents' own example: 17 * 23
        side = "B" if "391" in prompt.partition("BEGIN CANDIDATE B")[2] else "A"
        return Reply(f"<winner>{side}</winner>\n<confidence>HIGH</confidence>")
    if not shown and "BEGIN CANDIDATE" not in prompt:
        return Reply("OK")
    shown = shown or [0.5, 0.5]  # nothing tells them apart
    if "<rating_A>" in prompt:
        return Reply(f"<rating_A>{_rate(shown[0])}</rating_A>\n<rating_B>{_rate(shown[1])}</rating_B>")
    if "<rating>" in prompt:
        return Reply(f"<rating>{_rate(shown[0])}</rating>")
    if "<best>" in prompt:
        return Reply(f"<best>{1 + shown.index(max(shown))}</best>")
    winner = "TIE" if shown[0] == shown[1] else "A" if shown[0] > shown[1] else "B"
    return Reply(f"Both were read.\n<winner>{winner}</winner>\n<confidence>HIGH</confidence>")


def _rate(quality: float) -> int:
    return 1 + round(9 * quality)


def replying(lengths: Sequence[int]) -> Callable[[Request], str]:
    """Replies that are right, of given lengths, some of them unreadable; a function of the prompt."""

    def reply(request: Request) -> str:
        number = sum(map(ord, request.messages[0].content)) + request.draw
        length = lengths[number % len(lengths)]
        words = better_quality_wins({"messages": [{"content": request.messages[0].content}]}).text
        return "hm " * length + ("" if length % 7 == 3 else words)

    return reply


def cases(count: int, n: int = 8) -> list[Case]:
    """Parsed cases."""
    return [parse_case(case_line(f"case {i}", spread(n, i)), default_id="") for i in range(count)]
