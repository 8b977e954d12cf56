"""Secrets in what is read, printed and written down: found in every usual encoding, and taken out; pure.

There are three rules, and every part of the package uses these functions for them:

* What an endpoint sends has the key taken out of it before anyone reads, stores or prints it (`Secrets`).
* Of an address, neither user and password nor the values of its query are written down (`shown_address`).
* Of extra request fields, numbers are written down, and texts where the field is a known one that shapes a
  reply; any other text is written down as a digest (`recorded_extra`).

An endpoint has been given the key: one that means harm can send it on in a form that nobody recognises. These
rules are about servers that repeat, quote or log what they were sent, which many do.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any

MASK = "***"
LEAST = 4  # characters; what is shorter stands in too many words
LEAST_IN_REPLIES = 8  # the same for texts that people read: `EMPTY` is a usual key, and a usual word
LEAST_LETTERS = 16  # and of letters alone, which may be a word as well
DIGEST = "sha256:"

# Of an address: what tells versions apart and opens nothing.
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
_BETWEEN = re.compile(r"[\s,]+(?=[A-Za-z][A-Za-z0-9+.-]*://)")
_USER = re.compile(r"(?<=://)[^/?#\s]*@")
_NAMED = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"}
# What a form has in it that escapes letters and digits; where only other characters are escaped, a trace of
# the word stays as it is. Five patterns that begin with a plain text are faster than one of five branches.
_ESCAPES = [re.compile(one) for one in (rb"\x00", rb"%[2-7]", rb"&#", rb"\\u00[2-7]", rb"\\x[2-7]")]
_DEEPEST = 64


class Secrets:
    """Words that must not get out, found as they are, escaped, percent-encoded, in base64, hex or UTF-16."""

    def __init__(self, words: Iterable[str], *, least: int = LEAST) -> None:
        self.words = frozenset(word for word in words if len(word) >= least)
        self._traces = {trace for word in self.words for trace in _traces(word)}
        self.longest = max((8 * len(word) for word in self.words), default=0)  # bytes of an escaped form

    def __bool__(self) -> bool:
        return self.longest > 0

    @cached_property
    def _pattern(self) -> re.Pattern[bytes]:
        """All forms of all words; made when one is suspected, since a long key takes a while."""
        words = sorted(self.words, key=len, reverse=True)
        return re.compile(b"|".join(form for word in words for form in _forms(word)))

    def scrub(self, payload: bytes) -> bytes:
        """Take them out of bytes."""
        if not self.longest or not self._suspects(payload):
            return payload
        return self._pattern.sub(_masked, payload)

    def scrub_text(self, text: str) -> str:
        """Take them out of a text."""
        if not self.longest:
            return text
        return self.scrub(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def scrub_value(self, value: Any, room: int = _DEEPEST) -> Any:
        """Take them out of every text of a decoded value; what is nested too deeply is left out."""
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
        """Where a body that goes on may be cut: what is before this place cannot be part of a secret."""
        cut = max(0, len(payload) - self.longest)
        if not cut or not self._suspects(payload):
            return cut
        across = [found.start() for found in self._pattern.finditer(payload) if found.end() > cut]
        return min([cut, *across])

    def _suspects(self, payload: bytes) -> bool:
        """Whether a closer look is needed: it takes far longer, and hardly any reply needs it."""
        lowered = payload.lower()
        traced = any(trace in lowered for trace in self._traces)
        return traced or any(escape.search(payload) for escape in _ESCAPES)


class StreamScrubber:
    """Takes secrets out of a body that arrives in parts, also one that lies across two parts."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets, self._held = secrets, b""

    def feed(self, part: bytes) -> bytes:
        """What can be sent on now; the end of a line never has to wait."""
        if not self._secrets:
            return part
        payload = self._held + part
        cut = len(payload) if payload.endswith(b"\n") else self._secrets.open_end(payload)
        self._held = payload[cut:]
        return self._secrets.scrub(payload[:cut])

    def end(self) -> bytes:
        """What was held back."""
        held, self._held = self._held, b""
        return self._secrets.scrub(held)


def looks_secret(word: str) -> bool:
    """Whether a key is unlikely to be a word of somebody's answer, so that it can be taken out of replies."""
    return len(word) >= LEAST_IN_REPLIES and (len(word) >= LEAST_LETTERS or not word.isalpha())


def names_credential(name: str) -> bool:
    """Whether a field or parameter of that name is likely to hold a credential."""
    return _CREDENTIAL.search(name) is not None


def is_open_parameter(name: str) -> bool:
    """Whether the value of a query parameter may be written down."""
    return name.lower() in _OPEN_PARAMETERS


def shown_address(words: str) -> str:
    """One address or several as they may be written down: no user, no password, no values of a query."""
    return ",".join(map(_shown, _BETWEEN.split(words.strip(" \t\r\n,"))))


def is_masked(address: str) -> bool:
    """Whether something was left out of an address, so that it cannot be called."""
    return MASK in address


def _shown(address: str) -> str:
    if address.startswith("file:"):
        return address
    place, mark, query = _USER.sub("", address).partition("#")[0].partition("?")
    shown = []
    for part in re.split("[&;]", query):
        name, equals, _ = part.partition("=")
        open_ = not part or (equals and is_open_parameter(name))
        shown.append(part if open_ else f"{name}={MASK}" if equals else MASK)
    return place + mark + "&".join(shown)


def recorded_extra(extra: Mapping[str, object]) -> dict[str, object]:
    """Extra request fields as they may be written down; what is recorded already stays as it is."""
    return {name: _recorded(value, hidden=name not in _REPLY_FIELDS) for name, value in extra.items()}


def unrecorded(recorded: Mapping[str, object]) -> list[str]:
    """The names of recorded fields of which a digest is all that is known."""
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
    """The mask, in UTF-16 or UTF-32 where the secret was: what is around it stays readable."""
    between = len(found[0][1:]) - len(found[0][1:].lstrip(b"\0"))
    return (b"\0" * between).join([b"*"] * len(MASK))


def _traces(word: str) -> list[bytes]:
    """Texts of which one is in everything that holds a word as it is, in base64 or in hex, in lower case."""
    runs = re.findall(r"[0-9a-z]+", word.lower()) or [word.lower()]
    plain = max(runs, key=len).encode()
    packed = [max(re.findall(b"[0-9a-z]+", one.lower()), key=len) for one in _packed(word)]
    return [plain, *packed, *(raw.hex().encode() for raw in _encoded(word))]


def _encoded(word: str) -> list[bytes]:
    return [word.encode(form, "replace") for form in ("utf-8", "utf-16-le", "utf-16-be")]


def _packed(word: str) -> list[bytes]:
    """A word inside a longer text in base64, which looks different at each of three places."""
    found = []
    for raw in _encoded(word):
        for before in range(3):
            whole = b64encode(bytes(before) + raw)[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
            found += [whole] if len(whole) >= LEAST else []
    return found


def _forms(word: str) -> list[bytes]:
    """Patterns of a word's encodings."""
    forms = [rb"\x00{0,3}".join(map(_character, word))]
    forms += [_hex(raw) for raw in _encoded(word)]
    forms += [b"".join(map(_base64_character, one.decode())) for one in _packed(word)]
    return forms


def _character(letter: str) -> bytes:
    """A pattern of one character: in either case, escaped by JSON, Python or HTML, or percent-encoded."""
    code, branches = ord(letter), []
    for case in dict.fromkeys((letter, letter.lower(), letter.upper())):
        branches += [re.escape(case.encode("utf-8", "replace"))]
        if code > 127:
            branches += [re.escape(case.encode(form)) for form in ("utf-16-le", "utf-16-be")]
    for case in dict.fromkeys((letter, letter.lower(), letter.upper())):
        raw = case.encode("utf-8", "replace")
        units = case.encode("utf-16-be", "replace")
        pairs = [units[place : place + 2] for place in range(0, len(units), 2)]
        branches += [
            b"".join(b"%%(?:25){0,3}%b" % _hex(bytes([byte])) for byte in raw),
            b"".join(rb"\\{1,8}u%b" % _hex(pair) for pair in pairs),
            b"".join(rb"\\{1,8}x%b" % _hex(bytes([byte])) for byte in raw),
            b"&#0{0,6}%d;" % ord(case[0]),
            b"&#[xX]0{0,6}%b;" % _hex(b"%c" % ord(case[0]) if ord(case[0]) < 256 else pairs[0]),
        ]
    if letter in _NAMED:
        branches.append(_NAMED[letter].encode())
    if not letter.isalnum():
        branches.append(rb"\\{1,8}" + re.escape(letter.encode("utf-8", "replace")))
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
