"""What holds for all tests: none fails because the machine is busy, and what takes long begins first."""

import sys
from contextlib import nullcontext

import pytest
from hypothesis import HealthCheck, settings

import leftovers

#: Where processes are started and waited for; the rest is quick and fills the gaps at the end.
LONG = {"cli", "crash", "test_docs.py", "test_doctor.py", "test_process.py"}

#: Helpers that need Linux: a fork of a Python that is ready, process groups, bubblewrap. So does what uses them.
LINUX = {"other_platform", "sandboxing", "shell", "ready"}

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def modules_used_by(module):
    return {getattr(value, "__module__", "") for value in vars(module).values()}


def needs_linux(item):
    return not LINUX.isdisjoint(modules_used_by(item.module))


@pytest.fixture(autouse=True)
def no_process_of_a_sandbox_is_left(request):
    runs_programs = sys.platform == "linux" and "sandboxing" in modules_used_by(request.module)
    with leftovers.none_left() if runs_programs else nullcontext():
        yield


def pytest_collection_modifyitems(items):
    for item in items:
        if needs_linux(item):
            item.add_marker("linux")
        if sys.platform != "linux" and item.get_closest_marker("linux"):
            item.add_marker(pytest.mark.skip(reason="needs Linux"))
    items.sort(key=lambda item: LONG.isdisjoint(item.path.parts))
