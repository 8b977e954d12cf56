"""Choose the best of several answers to one question.

The model and its endpoint come from the environment:

    CAPS_MODEL=qwen3-14b CAPS_BASE_URL=http://localhost:8000/v1 python examples/best_of_n.py
"""

import caps

QUESTION = "What is 17 * 23?"
ANSWERS = [
    "17 * 20 is 340, and 17 * 3 is 51. So it is \\boxed{391}.",
    "17 * 23 is 17 * 25 minus 34. That is 425 - 34 = \\boxed{401}.",
    "20 * 23 is 460. Take away 3 * 23 = 79, and it is \\boxed{381}.",
]


def main() -> None:
    """Ask the judge and print what it chose."""
    best = caps.best_sync(QUESTION, ANSWERS, domain="math")
    print(f"candidate {best.winner}, answer {best.answer}: {best.text}")
    print(f"probability {best.probability:.2f}" if best.probability is not None else "no probability")
    print(f"{best.tokens} input tokens" + ("" if best.usd is None else f", ${best.usd:.4f}"))


if __name__ == "__main__":
    main()
