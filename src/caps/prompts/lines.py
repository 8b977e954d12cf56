"""The lines of a reply without decoration, the cells of its tables and the fields of its JSON."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from caps.prompts import forms
from caps.prompts.tags import JOINER, bare, canonical

_LINES = 400  # of a reply's lines, those at its end: keyed lines are looked for in them
_LINE = 600  # of a longer line only the end is read


class Line(NamedTuple):
    """A line of a reply with its place; `words` is the line without decoration."""

    raw: str
    words: str
    start: int
    length: int


def lines_of(text: str) -> list[Line]:
    """The last lines of a text that say anything; rows of tables become `key: value` lines."""
    at = len(text) - len(text.lstrip("\n"))
    lines = list[Line]()
    for raw in text[at:].split("\n"):
        # A line with a joiner in it is a candidate's, repeated: judges write none themselves.
        if raw and (stripped := raw.strip()) and JOINER not in stripped:
            lines.append(Line(_ending(stripped), "", at, len(raw)))
        at += len(raw) + 1
    return _untabled([line._replace(words=words_of(line.raw)) for line in lines[-_LINES:]])


def _ending(line: str) -> str:
    """The last words of a long line."""
    return line if len(line) <= _LINE else line[-_LINE:].partition(" ")[2]


def words_of(raw: str) -> str:
    """A line without decoration; in a comparison such as `B > A` the sign is none."""
    if forms.COMPARED.match(raw) or forms.RANKED.match(raw):
        return raw.strip("*_`$ ")
    return bare(forms.ENCLOSED.sub(r" \1 ", forms.BULLET.sub("", raw)))


def _untabled(lines: list[Line]) -> list[Line]:
    """The lines, with the rows of tables as keyed lines of their own."""
    plain, table = list[Line](), list[Line]()
    for line in lines:
        if line.raw.startswith("|"):
            table.append(line)
            continue
        plain += [*_cells(table), line]
        table = []
    return [line for line in [*plain, *_cells(table)] if line.words]


def _cells(table: Sequence[Line]) -> Iterator[Line]:
    """What the cells of a table say: `| Winner | B |`, or a B below a header `Winner`."""
    header, last = list[str](), list[str]()
    for row in table:
        cells = [bare(cell) for cell in row.raw.strip("|").split("|")]
        if not any(re.search(r"\w", cell) for cell in cells):
            header = last  # what stands above a rule is a header, of a further table perhaps
            continue
        said = [cell for cell in cells if ":" in cell]
        if len(cells) == 2 and forms.KEY_CELL.match(cells[0]) and not forms.KEY_CELL.match(cells[1]):
            said = [f"{cells[0]}: {cells[1]}"]
        elif header and not said:
            side = re.fullmatch(rf"(?:{forms.NOUNS} )?([AB])", cells[0])
            said = [
                f"{key} {side[1]}: {cell}" if side and forms.RATED.search(key) else f"{key}: {cell}"
                for key, cell in zip(header, cells, strict=False)
                if forms.KEY_CELL.match(key)
            ]
        yield from (row._replace(words=one) for one in said)
        header, last = header or cells, cells


def fields(text: str) -> Iterator[tuple[str, str, int]]:
    """The fields of JSON and the like that say a verdict: name, value, and where they start."""
    if '"' in text or "'" in text:
        for found in forms.FIELD.finditer(text):
            value = next((one for one in found.groups()[1:] if one is not None), "")
            yield canonical(found[1]), value, found.start()


def sentences(line: str) -> list[str]:
    """The sentences of a line without decoration."""
    return [one for one in forms.SENTENCE_ENDS.split(line) if one]
