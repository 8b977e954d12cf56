"""Processes that a test leaves running: orphans become children of the test process, so none is overlooked."""

import ctypes
import os
from contextlib import contextmanager, suppress
from pathlib import Path

from support.waiting import wait_until

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_SHARED = b"ready.py"  # serves commands to all tests of a process


@contextmanager
def none_left():
    """Meanwhile, be the parent of descendants whose own parent ends; all children of the block must end."""
    _adopt_orphans(1)
    before = children()
    try:
        yield
        wait_until(lambda: children() <= before)
    finally:
        _adopt_orphans(0)


def _adopt_orphans(flag):
    assert ctypes.CDLL(None).prctl(_SUBREAPER, flag, 0, 0, 0) == 0


def children():
    """The children of this process that have not ended; those that have are reaped."""
    found = set()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and _SHARED not in (folder / "cmdline").read_bytes():
                found.add((int(folder.name), state))
    for pid, state in found:
        if state == "Z":
            with suppress(ChildProcessError):  # somebody else waited for it
                os.waitpid(pid, os.WNOHANG)
    return {pid for pid, state in found if state != "Z"}


def processes_with(mark):
    """Processes whose command line contains a text."""
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and mark.encode() in (folder / "cmdline").read_bytes():
                found.append(folder.name)
    return found
