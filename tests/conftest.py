"""What holds for all tests: none fails because the machine is busy, and what takes long begins first."""

import asyncio
import inspect
import sys
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support import leftovers

#: What `make slow` runs instead of `make test`: documents are executed, browsers and models are real, processes
#: are started from scratch, killed and kept waiting, programs run into their limits. Single tests elsewhere are
#: marked `slow` where they stand.
SLOW = {
    "attacks/test_busy_machine.py", "attacks/test_deadlines.py", "attacks/test_ordinary_user.py",
    "attacks/test_shadow_modules.py", "browser", "cli/test_installed.py", "engines/test_ray_nodes.py",
    "grading/test_languages.py", "journal/test_processes.py", "journeys/test_embedded_diagnosis.py",
    "journeys/test_embedded_model.py", "journeys/test_examples.py", "journeys/test_failing_server.py",
    "journeys/test_kill.py", "server/test_api_clients.py", "server/test_clients.py", "server/test_live.py",
    "server/test_process.py", "studies/test_coverage.py",
}  # fmt: skip
TESTS = Path(__file__).parent
QUICK = "not slow and not long"  # as in pyproject.toml: the tests of `make test`

#: Where processes are started and waited for; the rest is quick and fills the gaps at the end.
LONG = {"attacks", "cli", "grading", "journeys", "workers"}

#: Helpers that need Linux: a fork of a Python that is ready, process groups, bubblewrap. So does what uses them.
LINUX = {"support.other_platform", "support.sandboxing", "support.shell", "support.ready"}

# `make test` tries the same examples every time, `make slow` new ones.
settings.register_profile("new", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("new"), derandomize=True)
settings.load_profile("same")


@cache
def modules_used_by(module):
    return {getattr(value, "__module__", "") for value in vars(module).values()}


def is_slow(path):
    if not path.is_relative_to(TESTS):  # of a plug-in
        return False
    place = path.relative_to(TESTS)
    return not SLOW.isdisjoint((place.as_posix(), place.parts[0]))


@pytest.fixture(autouse=True)
def no_process_of_a_sandbox_is_left(request):
    runs_programs = sys.platform == "linux" and "support.sandboxing" in modules_used_by(request.module)
    with leftovers.none_left() if runs_programs else nullcontext():
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a test that is a coroutine function in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def pytest_ignore_collect(collection_path, config):
    """Do not even import what `make test` does not run."""
    return True if config.option.markexpr == QUICK and is_slow(collection_path) else None


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items):
    for item in items:
        if is_slow(item.path):
            item.add_marker("slow")
        if not LINUX.isdisjoint(modules_used_by(item.module)):
            item.add_marker("linux")
        if sys.platform != "linux" and item.get_closest_marker("linux"):
            item.add_marker(pytest.mark.skip(reason="needs Linux"))
        if not any(map(item.get_closest_marker, ("xdist_group", "slow", "long"))):
            # A quick file is run by one worker: what its tests share is made once.
            item.add_marker(pytest.mark.xdist_group(item.path.relative_to(TESTS.parent).as_posix()))
    items.sort(key=lambda item: LONG.isdisjoint(item.path.parts))
