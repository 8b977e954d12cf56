"""A labelled run whose every figure is known: which choices are right, missed and impossible, and why."""

import json

from support.running import by_quality, run_cases

HARD = "hard"
#: Answers of the candidates with how good the judge finds them, the right answer, and the difficulty.
CASES = {
    **{
        f"right {place}": ([("47", 0.9)] * 3 + [("46", 0.5), ("45", 0.3)], "47", "easy") for place in range(7)
    },
    "missed": ([("12", 0.9), ("12", 0.8), ("13", 0.4), ("14", 0.2)], "13", HARD),
    "missed late": ([(str(place), 0.9 - 0.05 * place) for place in range(12)], "11", HARD),
    "impossible": ([("5", 0.9), ("6", 0.5), ("6", 0.4)], "7", HARD),
    "impossible too": ([("8", 0.9), ("9", 0.5)], "10", HARD),
    "עברית": ([("תשובה (ב)", 0.9), ("תשובה (א)", 0.4)], "תשובה (ב)", "easy"),
}
RIGHT, MISSED, IMPOSSIBLE = 8, 2, 2


def write_known_cases(path):
    """Write the cases."""
    rows = []
    for name, (answers, gold, difficulty) in CASES.items():
        candidates = [
            {
                "text": f"I compute (x-0.5)*(x-2.5)*3 and quality={quality} holds.\n\nIt is \\boxed{{{answer}}}.",
                "correct": answer == gold,
            }
            for answer, quality in answers
        ]
        problem = f"What is the answer of {name}? " + "It takes a while to say what is asked for here. " * 12
        rows.append(
            {
                "id": name, "domain": "math", "difficulty": difficulty, "answer": gold, "problem": problem,
                "candidates": candidates,
            }
        )  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


def known_run(folder, name="run", **settings):
    """Play the cases with a judge that always prefers the higher quality."""
    cases = write_known_cases(folder / "cases.jsonl")
    return run_cases(cases, folder / name, reply=by_quality, **settings)
