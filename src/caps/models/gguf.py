"""What a GGUF file says of itself, and a name that tells weights apart; read without loading them."""

import struct
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit
from urllib.request import url2pathname

from caps.core.errors import InputError

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
