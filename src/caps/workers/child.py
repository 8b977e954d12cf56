"""The child's side: reads requests from standard input and answers them under limits that it sets itself."""

import contextlib
import gc
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

from caps.workers.pool import CLOCK


def serve(answer: Callable[[Any, Sequence[bytes]], object], *, seconds: float, memory: int) -> None:
    """Answer requests that are followed by bytes until the input ends.

    Each may use `seconds` of processor time. What a library or a plug-in prints is discarded, so that it is
    not taken for a reply.
    """
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    limit_memory(memory)
    gc.disable()  # few values have cycles, and searching for them takes longer than most requests
    gc.freeze()
    _send(replies, "ready")
    while line := requests.readline():
        request, *sizes = json.loads(line)
        parts = [_take(requests, size) for size in sizes]
        limit_cpu(seconds)
        end_after(2 * CLOCK * seconds + 1)
        reply = answer(request, parts)
        _send(replies, reply)
        limit_cpu(0)
        end_after(0)
        del request, parts, reply
        gc.collect()
        gc.freeze()  # modules that the request loaded need not be searched after the next one


def _send(replies: BinaryIO, reply: object) -> None:
    replies.write(json.dumps(reply).encode() + b"\n")
    replies.flush()


def _take(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("the request is cut off")
    return data


def limit_memory(size: int) -> None:
    """Limit the memory of this process to `size` bytes, where the system supports it."""
    try:
        import resource  # noqa: PLC0415  # not on Windows
    except ImportError:
        return
    with contextlib.suppress(ValueError, OSError):  # macOS does not take it
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_cpu(seconds: float) -> None:
    """End this process when it has used this much more processor time; 0 ends the limit."""
    if hasattr(signal, "setitimer"):  # not on Windows
        signal.setitimer(signal.ITIMER_PROF, seconds)


def end_after(seconds: float) -> None:
    """End this process unless this is called again within `seconds`; 0 ends the limit.

    The parent ends a worker that takes too long; this is for one whose parent is gone, where the system has
    timers.
    """
    if hasattr(signal, "setitimer"):  # not on Windows
        signal.setitimer(signal.ITIMER_REAL, seconds)
