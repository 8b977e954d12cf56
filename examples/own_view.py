"""Show the judge a view of your own: here the last lines of a candidate, where conclusions stand.

A view is a function from a candidate to a text. It must be total: any text, empty or of 10 MB, must do. From
the command line: caps select cases.jsonl --view partial=py:own_view:last_lines --base-url URL --model NAME
"""

import caps

LINES = 2


def last_lines(candidate: caps.Candidate) -> str:
    """The last lines of a candidate."""
    return "\n".join(candidate.text[-10_000:].splitlines()[-LINES:])


def shows_its_views(problem: str, a: str, b: str) -> str:  # noqa: ARG001
    """A judge for the example: it prints what it sees and prefers the larger conclusion."""
    print(f"seen: {a!r}")
    return "A" if a > b else "B"


def main() -> None:
    """A strategy that asks about partial views (E1) first, with this one in their place."""
    answers = [f"Let us think.\nStep one.\nStep two.\nSo it is {number}." for number in (1, 2)]
    case = caps.Case.of("Which number is larger?", answers)
    views = {"partial": "__main__:last_lines"}
    chosen = caps.select_sync(case, judge=shows_its_views, strategy="caps", views=views)
    print(f"candidate {chosen.winner}")


if __name__ == "__main__":
    main()
