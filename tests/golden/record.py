"""Golden transcripts: contests written down once, which must replay unchanged.

`make golden` records them anew; do that only when a strategy is meant to ask differently, and say so.
"""

import json
from dataclasses import asdict
from pathlib import Path

from caps import Contest
from caps.session.parts import make_strategy
from support.playing import ALL, erratic, field_of, played

FOLDER = Path(__file__).parent / "transcripts"
FIELDS = {
    "16 different": [f"answer {i}" for i in range(16)],
    "16 in clusters": [f"answer {i * i % 7}" if i % 5 else None for i in range(16)],
    "9 different": [f"answer {i}" for i in range(9)],
}


def describe(contest: Contest) -> dict[str, object]:
    """A contest as plain data: every ask, every answer, the outcome."""
    turns = [
        {
            "stage": turn.round.stage,
            "asks": [asdict(ask) for ask in turn.round.asks],
            "answers": [asdict(answer) for answer in turn.answers],
            "ranking": turn.round.ranking,
            "byes": turn.round.byes,
        }
        for turn in contest.transcript
    ]
    selection = asdict(contest.selection)
    selection["scores"] = {str(k): round(v, 9) for k, v in sorted(contest.selection.scores.items())}
    selection["facts"] = {k: round(v, 9) for k, v in contest.selection.facts.items()}
    return {"turns": turns, "selection": selection}


def contests(name: str) -> dict[str, dict[str, object]]:
    """Each field, played by one strategy with an erratic judge."""
    strategy = make_strategy(name)
    return {
        title: describe(played(strategy, field_of(len(signatures), signatures), erratic(11), seed=1234))
        for title, signatures in FIELDS.items()
    }


def dump(value: object) -> str:
    """Compact, diffable JSON: one turn a line."""
    return (
        json.dumps(value, separators=(",", ":"))
        .replace('{"stage"', '\n{"stage"')
        .replace('"selection"', '\n"selection"')
        + "\n"
    )


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for strategy_name in ALL:
        (FOLDER / f"{strategy_name}.json").write_text(dump(contests(strategy_name)))
