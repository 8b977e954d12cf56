"""What works on this machine, what does not, and the command that mends it."""

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

from caps.models.discovery import Place
from caps.models.weights import cached_path, is_intact

LEAST_PYTHON = (3, 11)
LEAST_FREE = 200 << 20
PATIENCE = 20.0
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
# As little as a sandbox needs: its own namespaces over a file system that can only be read.
SANDBOXED = ("--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
# The first is Debian's name for it, the second Ubuntu's; a container has what its host allows.
USER_NAMESPACES = (
    "sysctl kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0, on the host"
)


class Extra(NamedTuple):
    """An optional part: the name pip knows, what is imported for it, and what it is for."""

    name: str
    imports: tuple[str, ...]
    purpose: str


EXTRAS = (
    Extra("local", ("xllamacpp",), "models inside this process (--model embedded)"),
    Extra("bench", ("matplotlib", "math_verify"), "plots, and algebra in grading"),
    Extra("parquet", ("pyarrow",), "reading Parquet files (caps import)"),
    Extra("ray", ("ray",), "many machines (--engine ray)"),
    Extra("server", ("starlette", "uvicorn", "prometheus_client"), "answering clients (caps serve)"),
    Extra("prices", ("genai_prices",), "listed prices of models"),
    Extra("tokenizers", ("tokenizers",), "counting tokens with a tokenizer.json (--tokenizer)"),
)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at: `missing` is optional and not there, `broken` is there and does not work."""

    name: str
    state: Literal["ok", "missing", "broken"]
    found: str
    mend: str = ""


def examine(
    *, cache: Path, journal: Path, endpoints: Sequence[Place] = (), model: str | None = None
) -> list[Check]:
    """Look at everything; endpoints are asked for their lists of models, nothing that costs."""
    return [
        check_python(),
        *map(check_extra, EXTRAS),
        check_weights(cache),
        *([check_endpoint(one, model) for one in endpoints] or [check_endpoint(None)]),
        check_journal(journal),
        check_sandbox(),
        check_browser(),
    ]


def check_python() -> Check:
    """Whether this Python is new enough."""
    found = f"{sys.version.split()[0]}, {sys.executable}"
    if sys.version_info >= LEAST_PYTHON:
        return Check("python", "ok", found)
    return Check("python", "broken", found, "install Python 3.11 or newer")


def check_extra(extra: Extra) -> Check:
    """Whether an optional part is installed and can be imported, tried in a process of its own."""
    name, mend = f"extra {extra.name}", f"pip install 'caps-select[{extra.name}]'"
    absent = [module for module in extra.imports if find_spec(module) is None]
    if absent:
        return Check(name, "missing", f"no {absent[0]}: {extra.purpose}", mend)
    problem = _run([sys.executable, "-c", f"import {', '.join(extra.imports)}"])
    if problem:
        return Check(name, "broken", problem, f"pip install --force-reinstall 'caps-select[{extra.name}]'")
    return Check(name, "ok", extra.purpose)


def check_weights(cache: Path) -> Check:
    """Whether the default weights are in the cache, whole."""
    path, mend = cached_path(cache), "caps doctor --fetch"
    if not path.exists():
        return Check("default weights", "missing", "not fetched yet: 93 MB, for --model embedded", mend)
    if not is_intact(path):
        return Check("default weights", "broken", f"{path}: its digest is wrong", mend)
    return Check("default weights", "ok", str(path))


def check_endpoint(endpoint: Place | None, model: str | None = None) -> Check:
    """Whether the endpoint of the environment lists its models, the chosen one among them."""
    name = "endpoint"
    if endpoint is None:
        mend = "export CAPS_BASE_URL=http://localhost:8000/v1 CAPS_MODEL=NAME"
        return Check(name, "missing", "none in the environment; --model embedded needs none", mend)
    from caps.models.discovery import discover  # noqa: PLC0415  (aiohttp takes a while to load)

    (found,) = asyncio.run(discover([endpoint], seconds=5.0))
    if found.state == "silent":
        mend = "start the server, or export another CAPS_BASE_URL"
        return Check(name, "broken", f"{found.base_url}: {found.problem}", mend)
    if found.state == "refusing":
        return Check(name, "broken", f"{found.base_url}: {found.problem}", "export CAPS_API_KEY=…")
    if found.state == "strange":
        mend = "export CAPS_BASE_URL=…; it often ends in /v1"
        return Check(name, "broken", f"{found.base_url}: {found.problem}", mend)
    served = [one.name for one in found.models]
    if model and served and model not in served:
        return Check(
            name, "broken", f"{found.base_url} serves no {model!r}", f"export CAPS_MODEL={served[0]}"
        )
    return Check(name, "ok", f"{found.base_url} serves {len(served)} model{'s' * (len(served) != 1)}")


def check_journal(path: Path) -> Check:
    """Whether the journal's folder can be written to and has room."""
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    mend = "export CAPS_JOURNAL=/another/folder/journal.sqlite"
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check("journal", "broken", f"{folder}: {error.strerror}", mend)
    if free < LEAST_FREE:
        return Check("journal", "broken", f"{folder}: only {free >> 20} MB free", mend)
    return Check("journal", "ok", f"{path}, {free / (1 << 30):.1f} GB free")


def check_sandbox(program: str = "bwrap") -> Check:
    """Whether bubblewrap is there and can really start a program, which many containers forbid."""
    found = shutil.which(program)
    if found is None:
        words = "no bubblewrap: programs of candidates cannot be run safely"
        return Check("sandbox", "missing", words, "apt-get install bubblewrap, or dnf install bubblewrap")
    problem = _run([found, *SANDBOXED, "true"])
    if problem:
        return Check("sandbox", "broken", problem, USER_NAMESPACES)
    return Check("sandbox", "ok", found)


def check_browser() -> Check:
    """Whether there is a browser, which only the tests of the report look for."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        return Check("browser", "missing", "only the report's tests want one", "apt-get install chromium")
    return Check("browser", "ok", found)


def _run(command: list[str]) -> str:
    """Run a program for nothing but its end; why it did not end well, or nothing."""
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{Path(command[0]).name}: {error}"
    if done.returncode == 0:
        return ""
    said = done.stderr.strip().splitlines()
    return said[-1] if said else f"{Path(command[0]).name} ended with {done.returncode}"
