"""Child interpreters: the one way in which this package starts another Python.

Rules that must not be broken:

* A child imports nothing from the working directory, which may hold files of anybody, unless the name is
  found nowhere else. Python itself puts that directory first for `-c` and `-m`.
* A child has only those variables of the environment that it needs: API keys are not inherited.
"""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import NamedTuple, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_PATH_FIRST = "import os, sys; sys.path[:] = sys.argv.pop(1).split(os.pathsep); "
_ALWAYS = ("SYSTEMROOT",)  # without it, Python does not start on Windows
_LOADING = ("PATH", "HOME", "USERPROFILE", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # of native libraries
# As -I, which would ignore the hash seed too; the environment made here has no other variable of Python.
_ISOLATED = ("-P", "-s")
_SEED = {"PYTHONHASHSEED": "0"}  # the order of sets, and so what is found, is always the same
_SAFE_PATH = "PYTHONSAFEPATH"  # as -P, also for the interpreters that a child starts


class ChildPython(NamedTuple):
    """The command of a child interpreter, and its environment."""

    argv: tuple[str, ...]
    env: dict[str, str]


def isolated(code: str, *arguments: str, native: bool = False) -> ChildPython:
    """A child that runs some code with the arguments in `sys.argv[1:]`, and an empty environment.

    `native` keeps the variables by which native libraries are found.
    """
    kept = _ALWAYS + (_LOADING if native else ())
    env = {name: os.environ[name] for name in kept if name in os.environ}
    argv = (sys.executable, *_ISOLATED, "-c", _PATH_FIRST + code, _import_path(), *arguments)
    return ChildPython(argv, env | _SEED)


def module(name: str, *arguments: str) -> ChildPython:
    """A child that runs an installed module, such as pip, with the environment."""
    return ChildPython((sys.executable, "-P", "-m", name, *arguments), os.environ | {_SAFE_PATH: "1"})


def map_in_processes(work: Callable[[T], R], items: Iterable[T], *, processes: int) -> Iterator[R]:
    """Results in the order of the items, computed here or in several processes.

    Only a few items are in progress at once, so a long input is never held as a whole.
    """
    if processes <= 1:
        yield from map(work, items)
        return
    with _process_pool(processes) as workers:
        under_way: deque[Future[R]] = deque()
        for item in items:
            under_way.append(workers.submit(work, item))
            if len(under_way) > 2 * processes:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()


@contextmanager
def _process_pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """A pool whose processes are started with a safe import path, and end with this process."""
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"  # multiprocessing has no other way to pass it
    try:
        with ProcessPoolExecutor(
            processes, mp_context=get_context("spawn"), initializer=_leave_with_parent
        ) as workers:
            yield workers
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before


def _leave_with_parent() -> None:
    """End this worker when its parent ends: a killed parent would leave it waiting for ever."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=watch, daemon=True).start()


def _import_path() -> str:
    """The import path of this process, with the working directory at its end, if it is there at all."""
    here = Path.cwd()
    elsewhere = [place for place in sys.path if place and Path(place).absolute() != here]
    return os.pathsep.join(elsewhere if len(elsewhere) == len(sys.path) else [*elsewhere, str(here)])
