"""What a worker in another process works with, and how it gets it."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, TypeAlias

from caps.engines.budget import Pot
from caps.engines.local import LocalEngine
from caps.findings.kept import Findings
from caps.journal.base import Keeper


class Bench(NamedTuple):
    """An engine for so many seconds (or without a limit), and who looks into cases first."""

    engine: Callable[[float | None], LocalEngine]
    findings: Findings | None


Equip: TypeAlias = Callable[[Keeper | None, Pot | None], AbstractAsyncContextManager[Bench]]
