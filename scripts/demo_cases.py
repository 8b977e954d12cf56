"""Write the cases of `caps demo`: math answers the embedded model really wrote, small programs of our own.

All labels come from `caps grade`. Run it once when the problems change: python scripts/demo_cases.py
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

OUT = Path(__file__).parents[1] / "src" / "caps" / "cli" / "demo_cases.jsonl"
N = 8

MATH = [
    ("coins", "Mia has 20 coins. She spends half of them. How many coins are left?", "10"),
    ("train", "A train travels 60 km in one hour. How far does it travel in 3 hours?", "180"),
    ("ages", "Max is 9 years old. Lea is 4 years older than Max. How old is Lea?", "13"),
]

CODE = [
    {
        "id": "evens",
        "problem": "Read a line of integers. Print the sum of the even ones.",
        "tests": {
            "public": [{"input": "1 2 3 4\n", "output": "6\n"}, {"input": "5 7\n", "output": "0\n"}],
            "hidden": [{"input": "-2 4 9\n", "output": "2\n"}, {"input": "10\n", "output": "10\n"}],
        },
        "candidates": [
            "print(sum(n for n in map(int, input().split()) if n % 2 == 0))",
            "total = 0\nfor word in input().split():\n    if int(word) % 2 == 0:\n"
            "        total += int(word)\nprint(total)",
            "print(sum(n for n in map(int, input().split()) if n % 2 == 0 and n > 0))",
            "print(sum(n for n in map(int, input().split()) if n % 2))",
            "print(sum(map(int, input().split()))",
            "numbers = [int(n) for n in input().split()]\nprint(sum(numbers[1::2]))",
        ],
    },
    {
        "id": "reverse",
        "problem": "Read a sentence. Print its words in reverse order, with one space between them.",
        "tests": {
            "public": [{"input": "to be or not\n", "output": "not or be to\n"}],
            "hidden": [{"input": "one\n", "output": "one\n"}, {"input": "a  b   c\n", "output": "c b a\n"}],
        },
        "candidates": [
            "print(input()[::-1])",
            "words = input().split(' ')\nwords.reverse()\nprint(' '.join(words))",
            "print(' '.join(reversed(input().split())))",
            "words = input().split()\nprint(*words[::-1])",
            "words = input().split()\nfor i in range(len(words) - 1, 0, -1):\n    print(words[i], end=' ')",
        ],
    },
    {
        "id": "clamp",
        "problem": "Write clamp(x, low, high): x, but at least low and at most high. clamp(7, 0, 5) == 5",
        "entry_point": "clamp",
        "tests": "def check(candidate):\n    assert candidate(7, 0, 5) == 5\n"
        "    assert candidate(-3, 0, 5) == 0\n    assert candidate(2, 0, 5) == 2\n"
        "    assert candidate(4, 4, 4) == 4\n",
        "candidates": [
            "def clamp(x, low, high):\n    return max(low, min(x, high))",
            "def clamp(x, low, high):\n    return min(low, max(x, high))",
            "def clamp(x, low, high):\n    if x > high:\n        return high\n    return x",
            "def clamp(x, low, high):\n    return sorted((x, low, high))[1]",
        ],
    },
]


def caps(*words: object) -> None:
    """Run a command of caps."""
    subprocess.run([sys.executable, "-m", "caps", *map(str, words)], check=True)  # noqa: S603


def main() -> None:
    """Sample, put together, grade."""
    with tempfile.TemporaryDirectory() as folder:
        problems, drawn, both = (
            Path(folder) / name for name in ("problems.jsonl", "drawn.jsonl", "both.jsonl")
        )
        rows = [{"id": i, "domain": "math", "problem": p, "answer": a} for i, p, a in MATH]
        problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
        caps("sample", problems, "-n", N, "--model", "embedded", "-o", drawn, "--no-journal")
        fenced = [
            {"domain": "code", **case, "candidates": [f"```python\n{one}\n```" for one in case["candidates"]]}
            for case in CODE
        ]
        both.write_text(drawn.read_text() + "".join(json.dumps(case) + "\n" for case in fenced))
        caps("grade", both, "-o", OUT, "--no-journal")


if __name__ == "__main__":
    main()
