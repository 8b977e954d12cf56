"""What the judge says: a function of the prompt alone, as good as chance.

By chance, so that no verdict that is lost, changed or given to another ask goes unnoticed.
"""

from hashlib import sha256

from caps.models.base import Completion, ConnectOptions, Request, estimate_usage

WORDS = "Both were read with care, and this is what came of it."


def verdict(prompt: str) -> str:
    digest = sha256(prompt.encode()).digest()
    winner = "TIE" if digest[0] < 16 else "AB"[digest[1] & 1]
    return f"{WORDS}\n<winner>{winner}</winner>\n<confidence>{('LOW', 'HIGH')[digest[2] & 1]}</confidence>"


class Faultless:
    """The same judge inside the process: nothing can go wrong on the way to it."""

    connections = 64

    async def complete(self, request: Request) -> Completion:
        text = verdict("".join(message.content for message in request.messages))
        return Completion(text, "stop", estimate_usage(request.messages, text), model=request.model)

    async def close(self) -> None:
        pass


def connect(_: ConnectOptions) -> Faultless:
    """For `--base-url verdicts:connect`."""
    return Faultless()
