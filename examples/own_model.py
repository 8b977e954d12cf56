"""Use a model backend of your own: here one that judges without a network, by counting digits.

The journal, budgets, retries of unreadable replies and the ledger sit above it; it only completes
requests. From the command line: caps select cases.jsonl --model digits --base-url py:own_model:connect
"""

import re

import caps


class Digits:
    """Prefers the candidate with more digits, in the form that the prompt asks for."""

    connections = 8  # calls that may run at the same time

    async def complete(self, request: caps.Request) -> caps.Completion:
        """Answer a request, or raise `caps.ModelError` where that failed for good."""
        prompt = request.messages[0].content
        shown = re.findall(r"BEGIN CANDIDATE [AB].*?\n(.*?)\n[^\n]*END CANDIDATE", prompt, re.DOTALL)
        if len(shown) != 2:  # the one short call before a run
            return caps.Completion(text="ok", finish="stop", usage=caps.Usage(prompt=1, output=1))
        first, second = (sum(letter.isdigit() for letter in text) for text in shown)
        winner = "TIE" if first == second else "A" if first > second else "B"
        code = re.search(r"<code>(\w+)</code>", prompt)  # shows that the verdict is the judge's own
        reply = f"<winner>{winner}</winner>\n<confidence>HIGH</confidence>\n{code[0] if code else ''}"
        usage = caps.Usage(prompt=len(prompt) // 4, output=len(reply) // 4, estimated=True)
        return caps.Completion(text=reply, finish="stop", usage=usage, model=request.model)

    async def close(self) -> None:
        """Nothing is held open."""


def connect(wiring: caps.ConnectOptions) -> Digits:  # noqa: ARG001
    """The backend: `wiring` holds the address, the model's name, the key and the limits."""
    return Digits()


def main() -> None:
    """Select with it; it is named as the address."""
    case = caps.Case.of("How high is Mont Blanc?", ["Very high.", "4806 m.", "Some 4 km."])
    chosen = caps.select_sync(case, model="digits", base_url="__main__:connect")
    print(f"{chosen.text} ({sum(chosen.ledger.calls.values())} calls)")


if __name__ == "__main__":
    main()
