"""How many threads a model inside this process takes: one core stays free, and so do those others use.

llama.cpp's threads wait for one another at every layer, so one too many is far slower than one too few.
"""

import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def choose_threads(cores: int, load: float) -> int:
    """Threads for this many cores under this load average."""
    return max(1, min(cores - 1, cores - round(load)))


def free_threads() -> int:
    """Threads that fit this machine now."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return choose_threads(usable_cores(), load)


def usable_cores(quota: Path = _QUOTA) -> int:
    """Cores this process may use: its affinity, and a container's quota where there is one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        allowed, period = quota.read_text().split()
        return max(1, min(cores, int(allowed) // int(period)))
    except (OSError, ValueError, ZeroDivisionError):  # no such file, or "max": no quota
        return cores
