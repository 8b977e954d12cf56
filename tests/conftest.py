"""What holds for all tests: none fails because the machine is busy, and what takes long begins first."""

import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import leftovers

#: What `make slow` runs instead of `make test`: documents are executed, browsers and models are real, processes
#: are killed, programs run into their limits. Single tests elsewhere are marked `slow` where they stand.
SLOW = {
    "attacks/test_busy_machine.py", "attacks/test_ordinary_user.py", "attacks/test_shadow_modules.py", "browser",
    "crash", "diagnostics/test_coverage.py", "examples", "graders/test_languages.py", "live",
    "server/test_live.py",
}  # fmt: skip
TESTS = Path(__file__).parent

#: Where processes are started and waited for; the rest is quick and fills the gaps at the end.
LONG = {"cli", "crash", "test_docs.py", "test_doctor.py", "test_process.py"}

#: Helpers that need Linux: a fork of a Python that is ready, process groups, bubblewrap. So does what uses them.
LINUX = {"other_platform", "sandboxing", "shell", "ready"}

# `make test` tries the same examples every time, `make slow` new ones.
settings.register_profile("new", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("new"), derandomize=True)
settings.load_profile("same")


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
        place = item.path.relative_to(TESTS)
        if not SLOW.isdisjoint((place.as_posix(), place.parts[0])):
            item.add_marker("slow")
        if needs_linux(item):
            item.add_marker("linux")
        if sys.platform != "linux" and item.get_closest_marker("linux"):
            item.add_marker(pytest.mark.skip(reason="needs Linux"))
    items.sort(key=lambda item: LONG.isdisjoint(item.path.parts))
