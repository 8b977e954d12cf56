"""Replies of a judge that is right, of given lengths, some of them unreadable."""

from collections.abc import Callable, Sequence

from caps.models.base import Request
from caps.testing import better_quality_wins


def replying(lengths: Sequence[int]) -> Callable[[Request], str]:
    """A reply as a function of the prompt."""

    def reply(request: Request) -> str:
        number = sum(map(ord, request.messages[0].content)) + request.draw
        length = lengths[number % len(lengths)]
        words = better_quality_wins({"messages": [{"content": request.messages[0].content}]}).text
        return "hm " * length + ("" if length % 7 == 3 else words)

    return reply
