"""Candidate text made safe to quote: a nonce per case, a fence that carries it, look-alikes made inert.

Inert means that a word joiner (U+2060, no width) stands inside: a reader sees the same, no parser matches.
A model may drop the joiner when it repeats a candidate; then only the fence tells that it was quoting.
"""

import re
from collections.abc import Callable, Iterable
from hashlib import sha256
from itertools import count
from typing import TypeAlias

from caps.prompts.plain import KEYWORDS, keyword_lines, reads_plain
from caps.prompts.tags import JOINER

Quoting: TypeAlias = Callable[[str, str], str]

# Controls, bidirectional overrides and isolates, invisible tag letters, annotation marks, lone surrogates.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_CONTROLS = bytes((*range(9), *range(11, 32), 127))  # those of ASCII among them
# The joiner goes behind the first character of each of these ...
_TOKENS = (
    re.compile(
        r"<(?=[\s/]{0,8}(?:winner|confidence|best|rating[ _-]?[ab]?)(?:\s[^<>]{0,40})?[\s/\\]{0,8}>)",
        re.IGNORECASE,
    ),
    re.compile(r"<(?=<<[ \t]{0,8}/?(?:BEGIN|END))", re.IGNORECASE),
    re.compile(r"<(?=[|｜][^\n<>]{1,60}[|｜]>|</?SYS>>)", re.IGNORECASE),
    re.compile(
        r"<(?=/?(?:s|bos|eos|pad|unk|mask|sop|eop|think|thinking|thought|reasoning|tool_call|tool_response"
        r"|function_call|(?:start|end)_of_\w{1,20}|fim_\w{1,20}|im_start|im_end|extra_id_\d{1,4}|unused\d{1,5}"
        r"|seed:\w{1,20}|0x[0-9a-f]{2})>)",
        re.IGNORECASE,
    ),
    re.compile(
        r"\[(?=/?(?:INST|THINK|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|gMASK)\])", re.IGNORECASE
    ),
)
_RARE_TOKEN = re.compile(r"◁(?=/?think▷)|a(?=ssistantfinal)", re.IGNORECASE)
# ... and behind the first letter of a line that reads like a heading or a fence, however it is decorated.
_HEADS = (
    r"(?:(?:task|problem|output format|evaluation guidelines|rating rules|instructions?|system|assistant|user"
    r"|(?:candidate|solution|submission)[ \t]{1,4}(?:[ab]|[0-9]{1,4}))(?:[^\w\n]|_)*+$"
    r"|(?:begin|end)[ \t]{1,4}(?:problem|candidate)\b"
    r"|(?<=## )(?:task|problem|candidate)\b)"
)
_HEADING = re.compile(rf"((?:\W|_)*+){_HEADS}", re.IGNORECASE)
_PLAIN_HEADING = re.compile(rf"([^a-z0-9]*+){_HEADS}")  # the same for lowered ASCII, ten times as quick


def nonce_for(problem: str, candidates: Iterable[str]) -> str:
    """The key on a case's fences: derived from its content, so it is stable, and absent from all of it."""
    texts = [problem, *candidates]
    digest = sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    lowered = [text.lower() for text in dict.fromkeys(texts)]
    tries = (sha256(digest.digest() + b"%d" % k).hexdigest()[: 6 + k // 4] for k in count())
    return next(nonce for nonce in tries if not any(nonce in text for text in lowered))


def neutralise(text: str) -> str:
    """The same text to a reader, with nothing in it that parses as verdict, fence, heading or chat token."""
    return _inert(text, text.lower())


def quote(text: str, nonce: str) -> str:
    """A text made inert; a nonce inside, which a view may have spliced together, is broken too."""
    lowered = text.lower()
    inert = _inert(text, lowered)
    if nonce not in (lowered if inert is text else inert.lower()):
        return inert
    return re.sub(re.escape(nonce), lambda m: _joined(m[0], 1), inert, flags=re.IGNORECASE)


def _inert(text: str, lowered: str) -> str:
    """`neutralise`; the lowered text is given, because it is wanted again and texts are long."""
    if not text.isascii() or len(text.encode().translate(None, _CONTROLS)) < len(text):
        text = _UNSEEN.sub(_stand_in, text.replace("\r\n", "\n"))
        lowered = text.lower()  # from here on only joiners go in, and none into a word looked for in it
    if "<" in text or "[" in text:
        for token in _TOKENS:
            text = token.sub(lambda m: _joined(m[0], 1), text)
    if not text.isascii() or "ssistantfinal" in lowered:
        text = _RARE_TOKEN.sub(lambda m: _joined(m[0], 1), text)
    match, seen = (_PLAIN_HEADING.match, lowered) if text.isascii() else (_HEADING.match, text)
    heads = [(at, found.end(1) + 1) for at, found in enumerate(map(match, seen.split("\n"))) if found]
    talking = keyword_lines(text)
    if not heads and not talking:
        return text
    lines = text.split("\n")
    for number, end in heads:
        lines[number] = _joined(lines[number], end)
    for number in talking:
        if reads_plain(lines[number]):
            lines[number] = _mute(lines[number])
    return "\n".join(lines)


def fenced(label: str, text: str, nonce: str, *, quoting: Quoting = quote) -> str:
    """The quoted block; whoever shows a text often may hand in a `quoting` that remembers."""
    return f"<<<BEGIN {label} {nonce}>>>\n{quoting(text, nonce)}\n<<<END {label} {nonce}>>>"


def _mute(line: str) -> str:
    return KEYWORDS.sub(lambda m: _joined(m[0], 1), line)


def _joined(word: str, at: int) -> str:
    return word[:at] + JOINER + word[at:]


def _stand_in(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code in (0x2028, 0x2029):
        return "\n"
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"
