"""The parts of a candidate: its last code block and its last boxed answer. Total, and linear in the text."""

import re

_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[^\n]*$", re.MULTILINE)
_BRACE = re.compile(r"\\(?:boxed|fbox)\s*\{|\\[{}\\]|[{}]")


def last_code_block(text: str) -> str | None:
    """The body of the last fenced block; one that is never closed runs to the end."""
    block, opened, fence = None, -1, ""
    for mark in _FENCE.finditer(text):
        if opened < 0:
            opened, fence = mark.end() + 1, mark.group(1)
        elif mark.group(1).startswith(fence):
            block, opened = text[opened : mark.start()], -1
    return block if opened < 0 else text[opened:]


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete `\boxed{…}`, nested braces included."""
    open_at: list[int] = []
    found: tuple[int, str] | None = None
    for mark in _BRACE.finditer(text):
        brace = mark.group()
        if brace == "}":
            start = open_at.pop() if open_at else -1
            if start >= 0 and (found is None or start > found[0]):
                found = start, text[start : mark.start()]
        elif brace == "{":
            open_at.append(-1)
        elif brace[-1] == "{" and len(brace) > 2:
            open_at.append(mark.end())
    return None if found is None else found[1].strip()
