"""A text that was pickled, compressed and written in base64, as LiveCodeBench ships its hidden tests.

Nothing is ever unpickled. The few instructions that make a text are read; any other is refused unread, so a
pickle that would call something, or allocate, cannot.
"""

import binascii
import pickletools
from base64 import b64decode

from caps.core.errors import InputError
from caps.datasets.reading import LIMITS, inflate

_TEXTS = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8"}
_HARMLESS = {"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "STOP"}


def unpack_text(packed: str, limit: int = LIMITS.packed) -> str:
    """The text, or `InputError`; never more than `limit` bytes are unpacked."""
    try:
        data = b64decode(packed, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"not base64 ({error})") from None
    return pickled_text(inflate(data, limit))


def pickled_text(data: bytes) -> str:
    """The one text a pickle holds; whatever else it holds is refused, and none of it is carried out."""
    found: list[str | bytes] = []
    try:
        for instruction, value, _ in pickletools.genops(data):
            if instruction.name in _TEXTS and isinstance(value, str | bytes):
                found.append(value)
            elif instruction.name not in _HARMLESS:
                raise InputError(f"a pickle with {instruction.name} in it is refused: a text alone is read")
    except (ValueError, IndexError, OverflowError, MemoryError) as error:
        raise InputError(f"not a pickle ({str(error)[:100]})") from None
    if len(found) != 1:
        raise InputError(f"a pickle of {len(found)} texts is refused: one text is read")
    text = found[0]
    try:
        return text if isinstance(text, str) else text.decode()
    except UnicodeDecodeError:
        raise InputError("not a pickled text: its bytes are no UTF-8") from None
