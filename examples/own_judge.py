"""Judge with a function of your own: here one that prefers the shorter of two programs that both compile.

No model is needed. A judge that calls a model may be async and may return what the call cost.
"""

import caps

PROBLEM = "Write a function double(x) that returns twice x."
PROGRAMS = [
    "def double(x):\n    result = x\n    result = result + x\n    return result\n",
    "def double(x):\n    return 2 * x\n",
    "def double(x)\n    return x * 2\n",
]


class ShorterProgram:
    """Compares two programs; its answers are kept in a journal under `judge_id`, if there is a journal."""

    judge_id = "shorter-program-1"  # change it when the function changes
    full_views = True  # whole candidates, also where the strategy asks about partial views

    def __call__(self, problem: str, a: str, b: str) -> tuple[str | caps.Verdict, caps.Usage]:
        """Prefer what compiles, then what is shorter."""
        first, second = self.rate(problem, a), self.rate(problem, b)
        return caps.Verdict(first, second), caps.Usage(prompt=0, output=0)

    def rate(self, problem: str, a: str) -> float:  # noqa: ARG002
        """From 1 to 10, for strategies that ask for ratings."""
        try:
            compile(a, "candidate", "exec")
        except SyntaxError:
            return 1.0
        return max(2.0, 10.0 - len(a) / 20)


async def prefers_multiplication(problem: str, a: str, b: str) -> str:  # noqa: ARG001
    """A plain function is enough: "A", "B" or "TIE"."""
    first, second = "* x" in a, "* x" in b
    return "TIE" if first == second else "A" if first else "B"


def main() -> None:
    """Let both judges choose."""
    case = caps.Case.of(PROBLEM, PROGRAMS, domain="code")
    for judge in (ShorterProgram(), prefers_multiplication):
        chosen = caps.select_sync(case, judge=judge, strategy="round-robin", hard_evidence="off")
        print(f"candidate {chosen.winner}:\n{chosen.text}")
    rated = caps.select_sync(case, judge=ShorterProgram(), strategy="pointwise", hard_evidence="off")
    print(f"highest rating: candidate {rated.winner}")


if __name__ == "__main__":
    main()
