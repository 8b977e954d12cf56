"""Safe display of candidate texts in prompts: nonce, code, fence, masked control tokens.

A prompt with a `{code}` shows texts unchanged, except for control characters and control tokens of models
(`show`). The code is in none of the texts, so it distinguishes a verdict from text that the judge repeats.
Without a code, tags of verdicts are broken up as well (`quote`).
"""

import re
from collections.abc import Callable, Iterable, Set
from functools import lru_cache
from hashlib import sha256
from html import unescape
from itertools import count
from typing import TypeAlias
from unicodedata import category, combining, normalize

Quoting: TypeAlias = Callable[[str, str], str]

# A code alternates letters and digits that do not look alike: short, no word and no number.
_LETTERS = "cdfghjkmnpqrtvwxz"
_DIGITS = "23456789"
_MIN_LENGTH = 4

# Controls, bidirectional overrides and isolates, invisible tag letters, annotation marks, lone surrogates.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_CONTROLS = bytes((*range(9), *range(11, 32), 127))  # the ASCII ones
# Control tokens of chat templates, and markers that servers replace by media. Tokenisers interpret them
# anywhere, and a marker without media makes a server refuse the call. Tokens without an effect (`<filename>`,
# `<box>`) are left alone, since programs contain such words.
_NAMES = "|".join(
    (
        # texts and turns: Llama 2, Gemma, GLM, Ling, MiniCPM, Command R, Nemotron, Step, Seed, T5
        r"s|bos|eos|pad|unk|mask|cls|sep|sop|eop|eod|role|用户|(?:bos|eos|eop|pad|unk|mask|cls|sep)_token",
        r"(?:start|end|begin)_?of_?\w{1,20}|im_(?:start|end|sep|middle)|role_end|extra_(?:id_)?\d{1,4}",
        r"special_\d{1,5}|unused_?(?:token_?)?\d{1,5}|reserved_\w{1,40}|seed:\w{1,20}|mask:\d{1,4}|0x[0-9a-f]{2}",
        # reasoning and tools
        r"think|thinking|thought|reasoning|tool_(?:calls?|response|result)|function_calls?|(?:minimax:)?tool_?calls?",
        r"available_tools|fim_\w{1,20}|(?-i:PRE|SUF|MID|EOT|FILL_ME|AI)",
        # media: llama.cpp's mtmd, LLaVA, InternVL, Gemma 3, DeepSeek-VL, MiniCPM-V, Idefics, Molmo, Ming
        r"__\w{1,60}__|img|image|video|audio|speech|sound|(?:img|image|video|audio|speech|vision|im)_\w{1,40}",
        r"(?:gen_)?(?:image|video|audio)patch|gen_(?:image|video|audio)|fake_token_around_image|global-img",
        r"(?:begin|start|end)_(?:img|image|video|audio)|row_\d{1,3}_col_\d{1,3}|(?:img|vid)_plh",
    )
)
_ANGLE = re.compile(
    rf"<(?=/?(?:{_NAMES})>"
    # ChatML, Llama 3, Phi, GLM, Granite; DeepSeek and Hunyuan with full-width bars; Gemma 4 with one bar
    r"|[|｜][^\n<>]{1,60}[|｜]>|/?[|｜]\w{1,40}>|/?\w{1,40}[|｜]>"
    r"|</?SYS>>)",
    re.IGNORECASE,
)
# Mistral, Voxtral, GLM, BERT, EXAONE; Ollama's and older llama.cpp's [img-1]
_SQUARE = re.compile(
    r"\[(?=/?(?:INST|THINK|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_(?:CALLS|RESULTS|CONTENT)|ARGS|CALL_ID|MODEL_SETTINGS"
    r"|(?-i:PREFIX|MIDDLE|SUFFIX|CLS|SEP|PAD|UNK|BOS|EOS|AUDIO|VIDEO|IMAGE)|[gs]?MASK|IMG|IMG_BREAK|IMG_END"
    r"|img-\d{1,6}|BEGIN_AUDIO|TRANSCRIBE|@BOS@|multimodal|\|[a-z_]{3,20}\|)\])",
    re.IGNORECASE,
)
# Kimi's; MiniMax's; Falcon's; harmony's end of reasoning with its tokens stripped
_RARE = re.compile(
    r"◁(?=/?\w{1,20}▷)|\](?=~!?b[\[\]]|<\]|![pd]~\[)|\[(?=e~\[)|>(?=>[A-Z_]{5,20}<<)|(?i:a(?=ssistantfinal))"
)
_RARE_SIGNS = ("◁", "]~", "]<]", "]!", "[e~", ">>", "ssistantfinal")

# What `quote` breaks up as well: verdict tags and fences, and lines that read like a heading or a fence,
# however they are decorated.
_TAG = re.compile(
    r"[<\[](?=[\s/]{0,8}(?:winner|confidence|best|rating[ _-]?[ab]?)[\s/\\]{0,8}[>\]]"
    r"|<<[ \t]{0,8}/?(?:begin|end))"
)
_HEADING = re.compile(
    r"^(?:[^\w\n]|_)*+(?=(?:task|problem|output format|evaluation guidelines|rating rules|instructions?"
    r"|system|assistant|user|(?:candidate|solution|submission)[ \t]{1,4}(?:[ab]|[0-9]{1,4}))(?:[^\w\n]|_)*+$"
    r"|(?:begin|end)[ \t]{1,4}(?:problem|candidate)\b"
    r"|(?<=## )(?:task|problem|candidate)\b)\w",
    re.IGNORECASE | re.MULTILINE,
)


def nonce_for(problem: str, candidates: Iterable[str], others: Iterable[str] = ()) -> str:
    """The nonce of a case's fences: derived from its content, and absent from it and from `others`."""
    texts = [problem, *candidates]
    digest = sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    attempts = (sha256(digest.digest() + b"%d" % k).hexdigest()[: 6 + k // 4] for k in count())
    return _absent(attempts, [*texts, *others])


def code_for(nonce: str, texts: Iterable[str]) -> str:
    """The code that verdicts of a case carry: derived from its nonce, and absent from all its texts.

    It is the same for every call of a case, and longer if the texts contain all shorter ones.
    """
    attempts = (_code(sha256(f"{nonce}/{k}".encode()).digest(), _MIN_LENGTH + k // 8) for k in count())
    return _absent(attempts, (form for text in texts for form in (text, visible(text, unusual(text)))))


def show(text: str, nonce: str) -> str:
    """The text with control characters, control tokens and the nonce made inert.

    They get a word joiner or a visible substitute. A view may splice a nonce together, so it is checked too.
    """
    if not text.isascii() or len(text.encode().translate(None, _CONTROLS)) < len(text):
        text = _INVISIBLE.sub(_substitute, text.replace("\r\n", "\n"))
    if "<" in text:
        text = _ANGLE.sub(_break, text)
    if "[" in text:
        text = _SQUARE.sub(_break, text)
    lowered = text.lower()
    if any(map(lowered.__contains__, _RARE_SIGNS)):
        text = _RARE.sub(_break, text)
    if nonce in lowered:
        text = re.sub(re.escape(nonce), _split, text, flags=re.IGNORECASE)
    return text


def quote(text: str, nonce: str) -> str:
    """The text as `show` returns it, without anything that parses as a verdict tag, a fence or a heading.

    Each of these gets a word joiner inside: a reader sees the same, no parser matches. It is for prompts
    without a code, which cannot tell a verdict from a text that the judge repeats.
    """
    text = show(text, nonce)
    # A tag in capitals or full-width letters is read too. Positions are the same in small letters.
    pieces, at = list[str](), 0
    for tag in _TAG.finditer(small_letters(text)):
        pieces += text[at : tag.end()], JOINER
        at = tag.end()
    return _HEADING.sub(_break, "".join([*pieces, text[at:]]))


def fenced(label: str, text: str, nonce: str, *, quoting: Quoting = quote) -> str:
    """A text in a fence; a caller may pass a `quoting` function with a cache."""
    return f"<<<BEGIN {label} {nonce}>>>\n{quoting(text, nonce)}\n<<<END {label} {nonce}>>>"


def _absent(attempts: Iterable[str], texts: Iterable[str]) -> str:
    lowered = [text.lower() for text in dict.fromkeys(texts)]
    return next(word for word in attempts if not any(word in text for text in lowered))


def _code(digest: bytes, length: int) -> str:
    kinds = (_LETTERS, _DIGITS)
    return "".join(kinds[at % 2][digest[at % 32] % len(kinds[at % 2])] for at in range(length))


def _break(match: re.Match[str]) -> str:
    return match[0] + JOINER


def _split(word: re.Match[str]) -> str:
    return word[0][0] + JOINER + word[0][1:]


def _substitute(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code in (0x2028, 0x2029):
        return "\n"
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


# --- Texts in plain letters: what a model may take for a letter, or repeat as one ---


JOINER = "\u2060"  # the word joiner: no width, breaks no line

# What models write for plain signs: full width, wide spaces, emoji letters. One for one. The small form of İ
# has two characters, as that of no other letter.
_FULL_WIDTH = {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
_OTHERS = {"\u3000": " ", "\xa0": " ", "\u202f": " ", "\ufe0f": " ", "🅰": "a", "🅱": "b", "İ": "i"}
_HAS_FULL_WIDTH = re.compile("[\uff01-\uff5e]")

# Letters that look like others: Greek, Cyrillic, Armenian, some Latin ones beyond ASCII, white on black.
_ALIKE = dict(
    zip(
        "ΑΒΕΗΙΚΜΝΟΡΤΧΥΖαεικνοτυАВЕІЈКМНОРСТХУҮԌԜаеіјорсухѕԁԛԝһոսıİſK",
        "ABEHIKMNOPTXYZaeikvotuABEIJKMHOPCTXYYGWaeijopcyxsdqwhnuiIsK",
        strict=True,
    )
) | {chr(first + at): chr(65 + at) for first in (0x1F150, 0x1F170) for at in range(26)}
# Zero-width characters that are letters or marks by category: Hangul, Khmer and Mongolian fillers, variation
# selectors.
_FILLERS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0"
    + "".join(map(chr, range(0xFE00, 0xFE10)))
)
_USUAL = bytes((9, 10, *range(32, 127)))
_BREAKS = "\r\x0b\x0c\x85\u2028\u2029"
_FEW = 40  # different characters: replacing each takes less time than one pass over all characters


def small_letters(text: str) -> str:
    """The text in small letters, full-width ones and the like as plain ones; positions do not change."""
    if not text.isascii():
        for sign, plain in {**_OTHERS, **(_FULL_WIDTH if _HAS_FULL_WIDTH.search(text) else {})}.items():
            text = text.replace(sign, plain)
    return text.lower()


def visible(text: str, signs: Set[str]) -> str:
    """The text in plain letters without accents and zero-width characters, as a model may repeat it.

    `signs` are its unusual characters.
    """
    forms = {sign: _visible_form(sign) for sign in signs}
    changed = {sign: form for sign, form in forms.items() if form != sign}
    if "\r" in changed:
        text = text.replace("\r\n", "\n")
    if len(changed) > _FEW:
        text = text.translate({ord(sign): form for sign, form in changed.items()})
    else:
        for sign, form in changed.items():
            text = text.replace(sign, form)
    return unescape(text) if "&" in text else text


def unusual(text: str) -> set[str]:
    """The different characters of a text that are not printable ASCII, tab or line feed."""
    rest = text.encode("utf-8", "surrogatepass").translate(None, _USUAL)
    return set(rest.decode("utf-8", "surrogatepass"))


@lru_cache(maxsize=8192)
def _visible_form(sign: str) -> str:
    """A character as a model may repeat it; itself unless that has plain letters, or none at all."""
    if sign in _BREAKS:
        return "\n"
    parts = (part for part in normalize("NFKD", sign) if not _hidden(part))
    form = "".join(_ALIKE.get(part, part) for part in parts)
    return form if not form or any(map(str.isascii, form)) else sign


def _hidden(sign: str) -> bool:
    """Whether a character is a control, a format character, a filler or a combining mark."""
    return category(sign).startswith("C") or combining(sign) > 0 or sign in _FILLERS
