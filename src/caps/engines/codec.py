"""The encoding of messages between the processes of `engines.processes`: no pickles, and little escaping."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from caps.core.errors import CapsError

_SIZE = 8  # bytes of a length field
_SHORT = 200  # characters: shorter texts are part of the JSON
_PLAIN = frozenset({type(None), bool, int, float})  # what JSON has itself
_REQUIRED = object()


class Codec:
    """Encodes messages as JSON followed by the long texts: no pickles, and little escaping.

    Besides plain values and paths, it supports dataclasses, structs, named tuples, enumerations, errors and
    functions of this package, by their names and the values of their fields.
    """

    def dump(self, question: Any) -> bytes:
        """Encode a message: sizes, JSON, long texts."""
        blobs: list[bytes] = []
        plain = json.dumps(_pack(question, blobs)).encode()
        sizes = [len(plain), *map(len, blobs)]
        head = b"".join(size.to_bytes(_SIZE) for size in (len(sizes), *sizes))
        return b"".join([head, plain, *blobs])

    async def load(self, stream: asyncio.StreamReader, longest: int) -> Any:
        """Read the next reply."""
        count = int.from_bytes(await stream.readexactly(_SIZE))
        if count * _SIZE > longest:
            raise ValueError("too long")
        sizes = _sizes(await stream.readexactly(count * _SIZE))
        if sum(sizes) > longest:
            raise ValueError("too long")
        return _loaded(await stream.readexactly(sum(sizes)), sizes)


def _loaded(data: bytes, sizes: Sequence[int]) -> Any:
    """The message of which `data` is all that follows the sizes."""
    plain, *blobs = [data[end - size : end] for end, size in zip(accumulate(sizes), sizes, strict=True)]
    try:
        return _unpack(json.loads(plain), blobs)
    except (LookupError, TypeError, AttributeError, ImportError) as error:
        raise ValueError(f"not a message: {error}") from None


def _sizes(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + _SIZE]) for at in range(0, len(data), _SIZE)]


def _pack(value: Any, blobs: list[bytes]) -> Any:
    """Convert a value for JSON; anything but a plain value becomes a list of its kind and its parts."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if kind is str:
        if len(value) <= _SHORT:
            return value
        blobs.append(value.encode("utf-8", "surrogatepass"))
        return ["text", len(blobs) - 1]
    if kind is tuple or kind is list:
        return [kind.__name__, *[_pack(one, blobs) for one in value]]
    if (known := _fields_of(kind)) is not None:
        return _pack_fields(value, known, blobs)
    return _pack_other(value, blobs)


def _pack_fields(value: Any, known: "_Fields", blobs: list[bytes]) -> list[Any]:
    """Convert an object to its fields; the last ones are left out as far as they have their defaults."""
    if known.by_name:
        parts = {name: getattr(value, name) for name in known.names}
        return ["named", known.type, _pack(parts, blobs)]
    count = len(known.names)
    for name, default in known.backwards:
        part = getattr(value, name)
        if part is not default and not (default == part == {}):
            break
        count -= 1
    return ["object", known.type, *[_pack(getattr(value, name), blobs) for name in known.names[:count]]]


def _pack_other(value: Any, blobs: list[bytes]) -> Any:
    if isinstance(value, Enum):
        return ["enum", _name_of(type(value)), value.value]
    if isinstance(value, bytes):
        blobs.append(value)
        return ["bytes", len(blobs) - 1]
    if isinstance(value, partial):
        arguments = _pack(list(value.args), blobs), _pack(value.keywords, blobs)
        return ["work", _name_of(value.func), *arguments]
    if isinstance(value, Mapping):
        return ["dict", [[_pack(one, blobs) for one in pair] for pair in value.items()]]
    if isinstance(value, CapsError):
        return ["error", _name_of(type(value)), _pack(str(value), blobs)]
    if isinstance(value, Path):
        return ["path", str(value)]
    plain: Any  # a subclass of such a type is sent as the type
    for plain in (str, int, float, list, tuple):
        if isinstance(value, plain):
            return _pack(plain(value), blobs)
    raise TypeError(f"{type(value).__name__} cannot be sent to another process, or back")


class _Fields(NamedTuple):
    """How objects of a type are sent: their fields in order, or by name.

    `backwards` has the fields with their defaults, the last one first; `_REQUIRED` is no default.
    """

    type: str
    names: tuple[str, ...]
    backwards: tuple[tuple[str, Any], ...]
    by_name: bool


@cache
def _fields_of(kind: Any) -> _Fields | None:
    """The fields of a dataclass, a struct or a named tuple."""
    found: list[tuple[str, Any]]
    by_name = False
    if issubclass(kind, msgspec.Struct):
        found = [(one.name, _default(one)) for one in msgspec.structs.fields(kind)]
    elif is_dataclass(kind):
        found = [(one.name, _default(one)) for one in fields(kind) if one.init]
        by_name = any(one.kw_only for one in fields(kind))
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        found = [(name, _REQUIRED) for name in kind._fields]
    else:
        return None
    return _Fields(_name_of(kind), tuple(name for name, _ in found), tuple(reversed(found)), by_name)


def _default(field: Any) -> Any:
    """The default of a field, if it is one value or an empty dictionary."""
    if field.default_factory is dict:
        return {}
    return _REQUIRED if field.default in (MISSING, msgspec.NODEFAULT) else field.default


def _unpack(value: Any, blobs: Sequence[bytes]) -> Any:
    if not isinstance(value, list):
        return value
    kind = value[0]
    if kind == "text":
        return blobs[value[1]].decode("utf-8", "surrogatepass")
    if kind == "object":
        return _resolve_type(value[1], object)(*[_unpack(one, blobs) for one in value[2:]])
    if kind == "tuple":
        return tuple([_unpack(one, blobs) for one in value[1:]])
    if kind == "list":
        return [_unpack(one, blobs) for one in value[1:]]
    return _unpack_other(kind, value[1:], blobs)


def _unpack_other(kind: str, rest: list[Any], blobs: Sequence[bytes]) -> Any:
    match kind:
        case "bytes":
            return blobs[rest[0]]
        case "dict":
            return {_unpack(key, blobs): _unpack(one, blobs) for key, one in rest[0]}
        case "work":
            arguments, keywords = (_unpack(one, blobs) for one in rest[1:])
            return partial(_resolve(rest[0]), *arguments, **keywords)
        case "path":
            return Path(rest[0])
    cls = _resolve_type(rest[0], {"enum": Enum, "error": CapsError}.get(kind, object))
    value = _unpack(rest[1], blobs)
    return cls(**value) if kind == "named" else cls(value)


def _name_of(thing: Any) -> str:
    return f"{thing.__module__}:{thing.__qualname__}"


@cache
def _resolve_type(name: str, base: type) -> type[Any]:
    cls = _resolve(name)
    if not isinstance(cls, type) or not issubclass(cls, base):
        raise ValueError(f"{name} is not a type that a reply may hold")
    return cls


@cache
def _resolve(name: str) -> Any:
    """Find a function or type of this package by its name."""
    module, _, attribute = name.partition(":")
    if module.partition(".")[0] != "caps" or not attribute.isidentifier():
        raise ValueError(f"{name} is not part of caps")
    return getattr(import_module(module), attribute)
