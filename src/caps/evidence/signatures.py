"""Level E0: signatures that are equal where two candidates give the same answer; none where there is none."""

import re
from hashlib import sha256

from caps.core.types import Candidate
from caps.evidence.anatomy import dissect, final_answer, spoken
from caps.evidence.marks import lay_out
from caps.evidence.programs import LONGEST_PARSED, bare_lines, shape, tidy_lines
from caps.evidence.structured import LEAD_IN, canonical

LONGEST_SHOWN = 80
_SPACING = re.compile(r"\\[,!;: ]|\\q?quad(?![a-z])|\\(?:left|right)(?![a-z])|[\s~$]")
_FRACTION = re.compile(r"\\[dt]frac(?![a-z])")


def math_answer(candidate: Candidate) -> str | None:
    """The stated or last boxed answer, lowercase, without white space and LaTeX spacing."""
    answer = final_answer(candidate)
    if answer is None:
        return None
    if not answer.isalnum():
        answer = _SPACING.sub("", _FRACTION.sub(r"\\frac", answer)).rstrip(".")
    return _short(answer.lower())


def code_ast(candidate: Candidate) -> str | None:
    """A hash of the parsed program without docstrings and layout; of its lines where it does not parse."""
    code = dissect(candidate).code
    if code is None:
        code = spoken(candidate.text)
        return _digest(tidy_lines(code) if len(code) > LONGEST_PARSED else shape(code))
    tree = shape(code)
    return _digest(tidy_lines(code) if tree is None else tree)


def code_text(candidate: Candidate) -> str | None:
    """The paper's hash of the program's text without imports, comments, blank lines and indentation.

    It takes programs that differ in indentation only for equal, which in Python they are not.
    """
    code = dissect(candidate).code
    if code is None:
        code = spoken(candidate.text)
        if not shape(code):
            return None
    return _digest(bare_lines(code))


def code_behaviour(candidate: Candidate) -> str | None:
    """What the program was found to do; where it was not run, or nothing came out, its syntax tree."""
    return _found(candidate) or code_ast(candidate)


def math_equivalent(candidate: Candidate) -> str | None:
    """The class of equal answers it was found to be in; where nobody looked, the answer as written."""
    return _found(candidate) or math_answer(candidate)


def general_text(candidate: Candidate) -> str | None:
    """The stated answer or the reply without its thoughts: as JSON, as tool calls, or casefolded text."""
    reply = (candidate.answer or "").strip() or spoken(candidate.text).strip()
    value = canonical(reply)
    if value is None:
        value = _fenced_value(reply)
    return _short(" ".join(reply.casefold().split())) if value is None else _digest(value)


def verbatim(candidate: Candidate) -> str | None:
    """A hash of all a candidate says, byte for byte; none where it says nothing."""
    said = (candidate.text, candidate.code or "", candidate.answer or "")
    return _digest("verbatim\0" + "\0".join(said)) if any(part.strip() for part in said) else None


def _found(candidate: Candidate) -> str | None:
    return None if candidate.found is None else candidate.found.cluster


def _fenced_value(reply: str) -> str | None:
    """The value in a fenced block that is the reply, give or take a sentence around it."""
    block = lay_out(reply).block
    if block is None:
        return None
    around = reply[: block.start] + " " + reply[block.stop :]
    return canonical(block.within(reply)) if len(around.split(None, LEAD_IN)) <= LEAD_IN else None


def _short(text: str) -> str | None:
    """The text itself where it can be shown, else its hash."""
    return text if text and len(text) <= LONGEST_SHOWN and text.isprintable() else _digest(text)


def _digest(text: str | None) -> str | None:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16] if text else None
