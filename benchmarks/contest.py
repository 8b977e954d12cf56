"""What the bookkeeping of a contest costs, against merely creating its verdicts; and how it grows with N.

Ratios of one run on one machine; the two sides alternate, and the best of many rounds counts.
"""

from statistics import median
from time import perf_counter

from caps import Caps, Contest, Entrant, Verdict

VERDICT = Verdict(9, 3)
STRATEGY = Caps()


def bare() -> None:
    for _ in range(18):
        Verdict(9, 3)


def contest(entrants: list[Entrant]) -> int:
    running = Contest(STRATEGY, entrants, seed=1)
    asked = 0
    while round_ := running.pending:
        asked += len(round_.asks)
        running.answer([VERDICT] * len(round_.asks))
    return asked


def seconds(repeat: int, work: object, *given: object) -> float:
    start = perf_counter()
    for _ in range(repeat):
        work(*given)  # type: ignore[operator]
    return (perf_counter() - start) / repeat


def main() -> None:
    sixteen = [Entrant(i) for i in range(16)]
    ratios, floors, wholes = [], [], []
    for _ in range(60):
        floor, whole = seconds(200, bare), seconds(50, contest, sixteen)
        ratios.append(whole / floor)
        floors.append(floor)
        wholes.append(whole)
    print(f"18 bare verdicts   {1e6 * min(floors):8.1f} us")
    print(f"a CAPS contest     {1e6 * min(wholes):8.1f} us")
    print(f"ratio              {min(wholes) / min(floors):8.1f} x   (median of pairs {median(ratios):.1f} x)")
    print()
    print(f"{'N':>6}{'asks':>8}{'us an ask':>12}")
    for n in (16, 64, 256, 1024, 4096):
        field = [Entrant(i) for i in range(n)]
        asked = contest(field)
        best = min(seconds(max(1, 2048 // n), contest, field) for _ in range(7))
        print(f"{n:>6}{asked:>8}{1e6 * best / asked:>12.2f}")


if __name__ == "__main__":
    main()
