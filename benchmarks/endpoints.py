"""The endpoint of most benchmarks, in a process of its own: better quality wins, else A, after a delay."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from caps.testing import Reply, ScriptedEndpoint, better_quality_wins, endpoint_process, is_judge

#: The code that a prompt asks for behind a label, and the labels of a reply.
ASKED_CODE = re.compile(r"WINNER is A-(\w+)")
VERDICT = re.compile(r"(?<=<winner>)(A|B|TIE)<")


@contextmanager
def endpoint(delay: float = 0.0, *, vary: bool = False) -> Iterator[str]:
    """Run it; yields its base URL. With `vary`, whoever is no judge gets another answer every time."""
    with endpoint_process("endpoints:judge", delay, vary) as url:
        yield url


def judge(delay: float, vary: bool) -> ScriptedEndpoint:  # noqa: FBT001
    """The endpoint itself."""

    def script(body: dict[str, object], number: int) -> Reply:
        if vary and not is_judge(body):
            return Reply(f"It is \\boxed{{{number}}}", delay=delay)
        reply = better_quality_wins(body)
        code = ASKED_CODE.search(str(body["messages"]))
        text = f"Both were read with care.\n{reply.text}"
        return replace(reply, text=VERDICT.sub(rf"\1-{code[1]}<", text) if code else text, delay=delay)

    return ScriptedEndpoint(script, keep=False)
