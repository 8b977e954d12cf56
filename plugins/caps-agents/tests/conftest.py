"""No test leaves a process of the sandbox behind."""

import sys
from contextlib import nullcontext

import pytest

from support import leftovers


@pytest.fixture(autouse=True)
def no_process_of_a_sandbox_is_left():
    with leftovers.none_left() if sys.platform == "linux" else nullcontext():
        yield
