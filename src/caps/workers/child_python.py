"""Child interpreters: the one way in which this package starts another Python.

Rules that must not be broken:

* A child imports nothing from the working directory, which may hold files of anybody, unless the name is
  found nowhere else. Python itself puts that directory first for `-c` and `-m`.
* A child has only those variables of the environment that it needs: API keys are not inherited.
"""

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

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


@contextmanager
def process_pool(
    processes: int, initializer: Callable[[], object] | None = None
) -> Iterator[ProcessPoolExecutor]:
    """A pool whose processes are started with a safe import path."""
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"  # multiprocessing has no other way to pass it
    try:
        with ProcessPoolExecutor(
            processes, mp_context=get_context("spawn"), initializer=initializer
        ) as workers:
            yield workers
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before


def _import_path() -> str:
    """The import path of this process, with the working directory at its end, if it is there at all."""
    here = Path.cwd()
    elsewhere = [place for place in sys.path if place and Path(place).absolute() != here]
    return os.pathsep.join(elsewhere if len(elsewhere) == len(sys.path) else [*elsewhere, str(here)])
