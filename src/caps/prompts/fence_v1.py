"""How prompts of version v1 quote a text; templates of a user's own without a `{code}` still do.

Whatever the parser of that version could read as a verdict, fence, heading or chat token gets a word joiner
(U+2060, no width) inside: a reader sees the same, no parser matches. A prompt is part of the key under which
its reply is stored, so these functions must never return anything else, not by one character: their patterns
stand here in full, and are shared with nothing that may change.
"""

import re

JOINER = "\u2060"  # the word joiner: no width, breaks no line
_NOUN = r"(?:solution|candidate|submission|response|answer|option|program|code)"

# What follows a letter that is meant as a label; "A or B or TIE", "A, B" and "A good try" name none.
_LABEL_ENDS = (
    r"(?= ?(?:$|[.,;:–—-]|(?:is|wins|because|as|since|with|over|confidence)\b))(?! ?[,;] ?(?:a|b|or|tie)\b)"
)
# A number, perhaps out of another one; "1-10" and "1 to 10" are the question, not an answer.
_NUMBER = (
    r"(?<![\w.,/-])([0-9]{1,6}+(?:[.,][0-9]{1,6}+)?)(?:(?: ?/ ?| out of )([0-9]{1,4}+))?"
    r"(?![0-9/])(?! ?(?:-|–|to|or) ?[0-9])"
)
_PLACE = r"(?<![\w.-])([0-9]{1,6}+)(?![\w/]|[.,][0-9])(?! ?(?:,|-|–|to|or|and) ?[0-9])"

_LATEX = re.compile(r"\\(?:boxed|fbox|text(?:bf|it|tt)?|math(?:rm|bf)) ?\{")
_INERT = re.compile(rf"(?<![^\W_])(?:[^\W_]*+{JOINER})++[^\W_]*+")
_DECORATION = re.compile("[*_`~\"'«»“”„‘’‚‹›)\\[\\]{}$#|<>!\\\\]")
# The most common first letters first, to reject most words quickly.
_WORDS = (
    r"(?:s(?:uperior|tronger|cores?)|tie|c(?:hoice|hoose|orrect|onfidence)|be(?:tter|st)|p(?:refer|ick)"
    r"|win(?:ner|s)|draw|ratings?|verdict)"
)
_KEYWORDS = re.compile(rf"(?<![^\W_]){_WORDS}(?![^\W_])", re.IGNORECASE)
# The same for words between spaces: a literal first character makes it twice as fast.
_SPACED = re.compile(rf" {_WORDS}(?= )".encode())
_SPACES = bytes(ord(chr(code).lower()) if chr(code).isalnum() and code < 128 else 32 for code in range(256))
# These match i, s and k if case is ignored.
_ALIKE = re.compile("[\u0130\u0131\u017f\u212a]")
# The readers take a `bare` line. Labels are capital letters here: in prose a small "a" is an article.
_NAMED = re.compile(
    r"\b(?:winner|verdict|better|best|choice|choose|prefer|pick)\b"
    rf"(?: (?:{_NOUN}|one|overall|is|goes to|the|my)\b){{0,4}} ?[:–—-]{{0,3}} ?(?:(?:the|{_NOUN}) ){{0,2}}"
    rf"\b(?:(?-i:([AB]))\b{_LABEL_ENDS}|(?:an? )?(?:tie|draw)\b(?! or\b))",
    re.IGNORECASE,
)
_STATED = re.compile(
    r"(?<!\w)(?-i:([AB])) (?:wins\b"
    r"|(?:is|seems|appears|looks)(?: (?!not\b|no\b|never\b|neither\b)\w{1,15}){0,3}?"
    r" (?:better|superior|stronger|winner|best|more correct)\b)",
    re.IGNORECASE,
)
_DRAWN = re.compile(r"\b(?:is|s|call it|declare|as) a (?:tie|draw)\b", re.IGNORECASE)
_DOUBT = re.compile(
    r"\b(?:if|whether|not|t|unless|cannot|claims?|says?|would|either|neither|nor)\b[^.;]{0,60}$",
    re.IGNORECASE,
)
_SURENESS = re.compile(
    r"\bconfidence\b(?: (?:is|level)\b){0,2} ?[:–—-]{0,2} ?(high|low)\b(?! or\b)|\b(high|low) confidence\b",
    re.IGNORECASE,
)
_RATED = re.compile(r"\b(?:ratings?|scores?)\b", re.IGNORECASE)
_RATED_ONE = re.compile(rf"\b(?:rating|score)(?: (?:is|of)| ?[:–—])(?: ?[:–—])? ?{_NUMBER}", re.IGNORECASE)
_RATED_SIDE = re.compile(rf"\b(?-i:([AB])) ?(?:is|:|=|–|—|-) ?{_NUMBER}", re.IGNORECASE)
_BEST = re.compile(
    rf"\b(?:best|winner|verdict)(?: (?:one|overall|the|{_NOUN})\b){{0,3}}"
    rf"(?: is\b| ?[:–—]| (?:{_NOUN}|number)\b)(?: ?[:–—]| (?:is|the|{_NOUN}|number)\b){{0,4}} ?{_PLACE}"
    rf"|\b{_NOUN} ([0-9]{{1,6}}+) (?:wins\b|is (?:the )?best\b)",
    re.IGNORECASE,
)


# Controls, bidirectional overrides and isolates, invisible tag letters, annotation marks, lone surrogates.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_CONTROLS = bytes((*range(9), *range(11, 32), 127))  # the ASCII ones
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
_PLAIN_HEADING = re.compile(rf"([^a-z0-9]*+){_HEADS}")  # the same for lowercase ASCII, ten times as fast


def neutralise(text: str) -> str:
    """The text, looking the same, without anything that parses as a verdict, fence, heading or chat token."""
    return _inert(text, text.lower())


def quote(text: str, nonce: str) -> str:
    """The text made inert, including a nonce that a view may have spliced together."""
    lowered = text.lower()
    inert = _inert(text, lowered)
    if nonce not in (lowered if inert is text else inert.lower()):
        return inert
    return re.sub(re.escape(nonce), lambda m: _joined(m[0], 1), inert, flags=re.IGNORECASE)


def _inert(text: str, lowered: str) -> str:
    """`neutralise` with the lowercase text passed in, since long texts are expensive to convert."""
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
    talking = _keyword_lines(text)
    if not heads and not talking:
        return text
    lines = text.split("\n")
    for number, end in heads:
        lines[number] = _joined(lines[number], end)
    for number in talking:
        if _reads_plain(lines[number]):
            lines[number] = _mute(lines[number])
    return "\n".join(lines)


def _mute(line: str) -> str:
    return _KEYWORDS.sub(lambda m: _joined(m[0], 1), line)


def _joined(word: str, at: int) -> str:
    return word[:at] + JOINER + word[at:]


def _stand_in(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code in (0x2028, 0x2029):
        return "\n"
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


def _keyword_lines(text: str) -> set[int]:
    """The numbers of all lines that may contain one of the keywords; a fast filter."""
    if not text.isascii() and _ALIKE.search(text):
        found = [word.start() for word in _KEYWORDS.finditer(text)]
    else:
        # Places stay the same: the space before a word is where the word is in the text.
        spaced = b" %b " % text.encode("ascii", "replace").translate(_SPACES)
        found = [word.start() for word in _SPACED.finditer(spaced)]
    lines, line, at = set[int](), 0, 0
    for place in found:
        line += text.count("\n", at, place)
        lines.add(line)
        at = place
    return lines


def _plain_side(words: str) -> str | None:
    """The last winner that a line names without doubt."""
    found = [one for form in (_NAMED, _STATED, _DRAWN) for one in form.finditer(words)]
    sure = [one for one in found if not _DOUBT.search(words[max(0, one.start() - 60) : one.start()])]
    last = max(sure, key=lambda one: one.end(), default=None)
    return None if last is None else (last[1] if last.re.groups else None) or "TIE"


def _plain_sureness(words: str) -> str | None:
    """`HIGH` or `LOW` if a line states a confidence."""
    found = list(_SURENESS.finditer(words))
    return (found[-1][1] or found[-1][2]).upper() if found else None


def _plain_rating(words: str) -> float | None:
    """The last rating a line states."""
    found = list(_RATED_ONE.finditer(words))
    return _on_scale(found[-1][1], found[-1][2]) if found else None


def _plain_ratings(words: str) -> dict[str, float]:
    """The ratings for A and B in a line about ratings."""
    if not _RATED.search(words):
        return {}
    return {one[1]: _on_scale(one[2], one[3]) for one in _RATED_SIDE.finditer(words)}


def _plain_place(words: str) -> int | None:
    """The last candidate number a line calls the best."""
    found = list(_BEST.finditer(words))
    return int(found[-1][1] or found[-1][2]) if found else None


def _reads_plain(line: str) -> bool:
    """Whether any of these readers finds something in the line."""
    if not _KEYWORDS.search(line):
        return False
    words = _bare(line)
    readers = (_plain_side, _plain_sureness, _plain_rating, _plain_place)
    return bool(_plain_ratings(words)) or any(read(words) is not None for read in readers)


def _bare(text: str) -> str:
    """The words of a line without emphasis, quotes, brackets and TeX, nor such as a joiner made inert."""
    text = _INERT.sub(JOINER, _LATEX.sub(" ", text))
    return " ".join(_DECORATION.sub(" ", text).replace("(", " , ").split())


def _on_scale(number: str, total: str | None) -> float:
    """A number as written, perhaps out of a total, clamped to 1-10."""
    value = float(number.replace(",", "."))
    if total and int(total) > 0:
        value *= 10 / int(total)
    return min(10.0, max(1.0, value))
