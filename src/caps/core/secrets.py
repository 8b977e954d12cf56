"""Removal of secrets, in the usual encodings, from everything that is read, printed or stored.

There are three rules, and every part of the package uses these functions for them:

* The key is removed from an endpoint's replies before they are read, stored or printed (`Secrets`).
* Addresses are stored without user, password and the values of their query (`shown_address`).
* Extra request fields are stored as they are if they are numbers, or texts of a known field that shapes the
  reply; any other text is stored as a digest (`recorded_extra`).

An endpoint knows the key: a malicious one can always return it in a form that no rule recognises. These rules
are for the many servers that repeat, quote or log their requests.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any

MASK = "***"
LEAST = 4  # characters; anything shorter occurs in too many words
LEAST_IN_REPLIES = 8  # the same for texts that people read: `EMPTY` is a common key and a common word
LEAST_LETTERS = 16  # the same for letters only, which may be a word
DIGEST = "sha256:"

# Query parameters that name a version and are no secret.
_OPEN_PARAMETERS = frozenset({"api-version", "api_version", "version"})
_CREDENTIAL = re.compile(
    r"key|token|secret|passw|pwd|auth|credential|cookie|session|signature|bearer|jwt|^sig$|^code$", re.I
)
# Request fields whose texts shape a reply, by the names of the usual servers.
_REPLY_FIELDS = frozenset(
    (
        "chat_template", "chat_template_kwargs", "ebnf", "format", "functions", "grammar",
        "guided_choice", "guided_decoding_backend", "guided_grammar", "guided_json", "guided_regex",
        "guided_whitespace_pattern", "json_schema", "modalities", "options", "provider",
        "quantization", "reasoning", "reasoning_effort", "reasoning_format", "regex",
        "response_format", "route", "samplers", "service_tier", "stop", "structural_tag",
        "structured_outputs", "thinking", "tool_choice", "tools", "transforms", "truncation",
        "verbosity",
    )
)  # fmt: skip
# A comma within an address does not separate: the next address begins with its scheme.
_BETWEEN = re.compile(r"[\s,]+(?=[A-Za-z][A-Za-z0-9+.-]*://)")
_USER = re.compile(r"(?<=://)[^/?#\s]*@")
# Signs that letters and digits may be escaped; if only other characters are escaped, a trace of the word
# stays readable. Patterns that begin with plain text are faster than one pattern with several branches.
_ESCAPES = [re.compile(sign) for sign in (rb"\x00", rb"%[2-7]", rb"\\u00[2-7]")]
_DEEPEST = 64


class Secrets:
    """Secret words, found as they are, escaped as in JSON, percent-encoded, in UTF-16, UTF-32 or base64."""

    def __init__(self, words: Iterable[str], *, least: int = LEAST) -> None:
        self.words = frozenset(word for word in words if len(word) >= least)
        self._traces = {trace for word in self.words for trace in _traces(word)}
        self.longest = max((8 * len(word) for word in self.words), default=0)  # bytes of an escaped form

    def __bool__(self) -> bool:
        return self.longest > 0

    @cached_property
    def _pattern(self) -> re.Pattern[bytes]:
        """All forms of all words; compiled on first use, since a long key takes a while."""
        words = sorted(self.words, key=len, reverse=True)
        return re.compile(b"|".join(form for word in words for form in _forms(word)))

    def scrub(self, payload: bytes) -> bytes:
        """Mask the secrets in bytes."""
        if not self.longest or not self._suspects(payload):
            return payload
        return self._pattern.sub(_masked, payload)

    def scrub_text(self, text: str) -> str:
        """Mask the secrets in a text."""
        if not self.longest:
            return text
        return self.scrub(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def scrub_value(self, value: Any, room: int = _DEEPEST) -> Any:
        """Mask the secrets in all texts of a decoded value; values nested too deeply are dropped."""
        if isinstance(value, str):
            return self.scrub_text(value)
        if not self.longest or not isinstance(value, dict | list):
            return value
        if room == 0:
            return None
        if isinstance(value, list):
            return [self.scrub_value(one, room - 1) for one in value]
        return {self.scrub_text(str(name)): self.scrub_value(one, room - 1) for name, one in value.items()}

    def open_end(self, payload: bytes) -> int:
        """The offset up to which an unfinished body cannot contain the start of a secret."""
        cut = max(0, len(payload) - self.longest)
        if not cut or not self._suspects(payload):
            return cut
        across = [found.start() for found in self._pattern.finditer(payload) if found.end() > cut]
        return min([cut, *across])

    def _suspects(self, payload: bytes) -> bool:
        """Whether the full pattern must be searched; a fast check, since hardly any reply needs it."""
        traced = any(trace in payload for trace in self._traces)
        return traced or any(escape.search(payload) for escape in _ESCAPES)


class StreamScrubber:
    """Masks secrets in a body that arrives in parts, including secrets split across parts."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets, self._held = secrets, b""

    def feed(self, part: bytes) -> bytes:
        """Add a part and return the bytes that can be forwarded; a complete line is never held back."""
        if not self._secrets:
            return part
        payload = self._held + part
        cut = len(payload) if payload.endswith(b"\n") else self._secrets.open_end(payload)
        self._held = payload[cut:]
        return self._secrets.scrub(payload[:cut])

    def end(self) -> bytes:
        """The bytes held back."""
        held, self._held = self._held, b""
        return self._secrets.scrub(held)


def looks_secret(word: str) -> bool:
    """Whether a key is unlikely to be an ordinary word, so that it can be masked in replies."""
    return len(word) >= LEAST_IN_REPLIES and (len(word) >= LEAST_LETTERS or not word.isalpha())


def names_credential(name: str) -> bool:
    """Whether a field or parameter of that name is likely to hold a credential."""
    return _CREDENTIAL.search(name) is not None


def is_open_parameter(name: str) -> bool:
    """Whether the value of a query parameter may be stored."""
    return name.lower() in _OPEN_PARAMETERS


def split_addresses(addresses: str) -> list[str]:
    """The addresses that commas or blanks separate."""
    return [address for address in _BETWEEN.split(addresses.strip(" \t\r\n,")) if address]


def shown_address(addresses: str) -> str:
    """One or several addresses without user, password and query values."""
    return ",".join(map(_shown, split_addresses(addresses)))


def is_masked(address: str) -> bool:
    """Whether part of an address is masked, so that it cannot be called."""
    return MASK in address


def _shown(address: str) -> str:
    if address.startswith("file:"):
        return address
    base, mark, query = _USER.sub("", address).partition("#")[0].partition("?")
    shown = []
    for part in re.split("[&;]", query):
        name, equals, _ = part.partition("=")
        open_ = not part or (equals and is_open_parameter(name))
        shown.append(part if open_ else f"{name}={MASK}" if equals else MASK)
    return base + mark + "&".join(shown)


def recorded_extra(extra: Mapping[str, object]) -> dict[str, object]:
    """Extra request fields as they may be stored; digests stay as they are."""
    return {name: _recorded(value, hidden=name not in _REPLY_FIELDS) for name, value in extra.items()}


def unrecorded(recorded: Mapping[str, object]) -> list[str]:
    """The names of recorded fields of which only a digest is known."""
    return [name for name, value in recorded.items() if _has_digest(value)]


def _recorded(value: object, *, hidden: bool, room: int = _DEEPEST) -> object:
    if isinstance(value, str):
        return _digest(value) if hidden else value
    if isinstance(value, bytes):
        return _digest(value.decode("latin-1"))
    if room and isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    if room and isinstance(value, list | tuple):
        return [_recorded(one, hidden=hidden, room=room - 1) for one in value]
    if room and isinstance(value, Mapping):
        return {
            name: _recorded(one, hidden=hidden or names_credential(str(name)), room=room - 1)
            for name, one in value.items()
        }
    return value


def _digest(text: str) -> str:
    if _is_digest(text):
        return text
    return DIGEST + sha256(b"caps extra field:" + text.encode("utf-8", "surrogatepass")).hexdigest()


def _is_digest(text: str) -> bool:
    return re.fullmatch(DIGEST + "[0-9a-f]{64}", text) is not None


def _has_digest(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_digest, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_digest, value))
    return isinstance(value, str) and _is_digest(value)


def _masked(found: re.Match[bytes]) -> bytes:
    """The mask in the encoding of the secret (such as UTF-16), so that the context stays readable."""
    between = len(found[0][1:]) - len(found[0][1:].lstrip(b"\0"))
    return (b"\0" * between).join([b"*"] * len(MASK))


def _traces(word: str) -> list[bytes]:
    """Texts, one of which occurs wherever a word occurs as it is or in base64."""
    forms = [word.encode("utf-8", "replace"), *_base64(word)]
    return [max(re.findall(b"[0-9A-Za-z]+", form) or [form], key=len) for form in forms]


def _base64(word: str) -> list[bytes]:
    """A word inside a longer base64 text, which has a different form at each of three offsets."""
    raw, forms = word.encode("utf-8", "replace"), []
    for before in range(3):
        whole = b64encode(bytes(before) + raw)[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
        forms += [whole] if len(whole) >= LEAST else []
    return forms


def _forms(word: str) -> list[bytes]:
    """Patterns of all encodings of a word; in UTF-16 and UTF-32 zero bytes stand between its letters."""
    packed = [b"".join(map(_base64_character, form.decode())) for form in _base64(word)]
    return [rb"\x00{0,3}".join(map(_character, word)), *packed]


def _character(letter: str) -> bytes:
    """A pattern of one character: as it is, percent-encoded, escaped as in JSON, or in UTF-16."""
    raw, units = letter.encode("utf-8", "replace"), letter.encode("utf-16-be", "replace")
    pairs = [units[place : place + 2] for place in range(0, len(units), 2)]
    branches = [
        re.escape(raw),
        b"".join(b"%%(?:25){0,3}%b" % _hex(bytes([byte])) for byte in raw),
        b"".join(rb"\\{1,8}u%b" % _hex(pair) for pair in pairs),
    ]
    if not letter.isascii():
        branches += [re.escape(units), re.escape(letter.encode("utf-16-le", "replace"))]
    if not letter.isalnum():
        branches.append(rb"\\{1,8}" + re.escape(raw))
    return b"(?:" + b"|".join(branches) + b")"


def _base64_character(letter: str) -> bytes:
    if letter == "+":
        return rb"(?:\+|-|%2[bB]|\\{1,8}u002[bB])"
    if letter == "/":
        return rb"(?:/|_|%2[fF]|\\{1,8}/|\\{1,8}u002[fF])"
    return letter.encode()


def _hex(raw: bytes) -> bytes:
    """Hexadecimal digits in either case."""
    return "".join(f"[{d}{d.upper()}]" if d.isalpha() else d for d in raw.hex()).encode()
