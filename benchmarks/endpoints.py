"""The endpoint of most benchmarks, in a process of its own: better quality wins, else A, after a delay."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from caps.testing import Reply, ScriptedEndpoint, better_quality_wins, endpoint_process, is_judge


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
        return replace(better_quality_wins(body), delay=delay)

    return ScriptedEndpoint(script, keep=False)
