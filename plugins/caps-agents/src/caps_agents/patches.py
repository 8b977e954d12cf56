"""Patches: changes to the files of a repository, as a diff or as a list of whole files.

A candidate is a unified or git diff, alone or in a reply with fenced blocks, or the JSON object
`{"files": {"path": "new text, or null to delete"}}`. Reading never fails: what is no patch is None.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import NamedTuple

from caps import Candidate, view_named
from caps_agents.shortening import cut

MAX_CHARACTERS = 10_000_000
"""Longer texts are no patches."""
PARTIAL_CHARACTERS = 4_000
EXPLANATION_CHARACTERS = 600
CONTEXT_CHARACTERS = 400_000
"""Most characters of a patch with the lines around it."""
LONGEST_LINE = 300
PATCH_CUT = "[...patch truncated...]"
LINE_CUT = " [...]"

_FENCE = re.compile(r"[ \t]{0,3}(?:`{3,}|~{3,})")
_START = re.compile(
    r"^(?:diff --git [^\n]+|diff -\S+ [^\n]+|Index: [^\n]+|--- [^\n]+\n\+\+\+ [^\n]+\n@@ )", re.MULTILINE
)
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@ ?(.*)")
_GIT_PATHS = re.compile(r'diff --git (?:"a/([^"]*)"|a/(.*?)) (?:"b/([^"]*)"|b/(.*))$')


class Hunk(NamedTuple):
    """One hunk: its header as written, and its lines with their signs."""

    header: str
    lines: tuple[str, ...]


@dataclass(slots=True)
class FileChange:
    """The changes to one file: its path after the patch, what happens to it, and its hunks."""

    path: str
    kind: str = "changed"
    old_path: str = ""
    hunks: list[Hunk] = field(default_factory=list)
    is_binary: bool = False

    @property
    def added(self) -> int:
        """Number of added lines."""
        return sum(line[:1] == "+" for hunk in self.hunks for line in hunk.lines)

    @property
    def removed(self) -> int:
        """Number of removed lines."""
        return sum(line[:1] == "-" for hunk in self.hunks for line in hunk.lines)


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch: the diff as it can be applied, or the new files; and the words around it.

    `strip` is the number of leading parts that are removed from each path of a diff.
    """

    diff: str = ""
    files: tuple[tuple[str, str | None], ...] = ()
    explanation: str = ""
    strip: int = 1


def looks_like_patch(text: str) -> bool:
    """Whether a text contains the start of a diff, or is a list of edited files."""
    return _START.search(text) is not None or _read_files(text) is not None


def read_patch(candidate: Candidate) -> Patch | None:
    """The patch in a candidate: in its stated code, its stated answer, or its text without thoughts."""
    for text in (candidate.code, candidate.answer):
        if text and len(text) <= MAX_CHARACTERS:
            patch = _read_text(text)
            if patch is not None:
                return patch
    if len(candidate.text) > MAX_CHARACTERS:
        return None
    return _read_text(view_named("without-thoughts")(candidate))


def _read_text(text: str) -> Patch | None:
    files = _read_files(text)
    if files is not None:
        return Patch(files=files)
    text = text.replace("\r\n", "\n")
    start = _START.search(text)
    if start is None:
        return None
    explanation = text[: start.start()]
    if _FENCE.search(explanation):
        diff, explanation = _unfenced(text)
    else:
        diff = text[start.start() :]
    return Patch(diff if diff.endswith("\n") else diff + "\n", (), explanation.strip(), _strip(diff))


def _unfenced(text: str) -> tuple[str, str]:
    """The diffs in the fenced blocks of a text, and the words outside the blocks."""
    diffs, words, block = list[str](), list[str](), list[str]()
    is_open = False
    for line in text.split("\n"):
        if _FENCE.match(line) is None:
            (block if is_open else words).append(line)
            continue
        content = "\n".join(block)
        if is_open and _START.search(content):
            diffs.append(content)
        block, is_open = [], not is_open
    rest = "\n".join(block)  # a block that is never closed
    if _START.search(rest):
        diffs.append(rest)
    return "\n".join(diffs), "\n".join(words)


def _read_files(text: str) -> tuple[tuple[str, str | None], ...] | None:
    """The files of `{"files": {...}}`, or of a list of objects with `path` and `content`."""
    if text.lstrip()[:1] != "{" or '"files"' not in text:
        return None
    try:
        files = json.loads(text).get("files")
    except (ValueError, RecursionError, MemoryError):
        return None
    if isinstance(files, list):
        rows = [(entry.get("path"), entry.get("content")) for entry in files if isinstance(entry, dict)]
        complete = len(rows) == len(files) and all(isinstance(path, str) for path, _ in rows)
        files = dict(rows) if complete else None
    if not isinstance(files, dict) or not files:
        return None
    if not all(value is None or isinstance(value, str) for value in files.values()):
        return None
    return tuple(sorted(files.items()))


def _strip(diff: str) -> int:
    """1 if all paths have the prefixes of git, a/ and b/; else 0."""
    for line in diff.split("\n"):
        if line.startswith(("--- ", "+++ ")):
            path = line[4:].partition("\t")[0].strip().strip('"')
            if path != "/dev/null" and path[:2] not in ("a/", "b/"):
                return 0
    return 1


def changes_of(patch: Patch) -> list[FileChange]:
    """The changes of a patch by file; lines that belong to no file are skipped."""
    if patch.files:
        return [
            FileChange(path, "deleted" if text is None else "written", hunks=_whole(text))
            for path, text in patch.files
        ]
    return list(_changes(patch.diff.split("\n"), patch.strip))


def _whole(text: str | None) -> list[Hunk]:
    return [] if text is None else [Hunk("", tuple(f"+{line}" for line in text.split("\n")))]


def _changes(lines: Sequence[str], strip: int) -> Iterator[FileChange]:
    current: FileChange | None = None
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        git = _GIT_PATHS.match(line) if line.startswith("diff --git ") else None
        if git is not None:
            if current is not None:
                yield current
            current = FileChange(git[3] or git[4] or "", old_path=git[1] or git[2] or "")
        elif line.startswith("--- ") and at < len(lines) and lines[at].startswith("+++ "):
            old, new = (_path(header[4:], strip) for header in (line, lines[at]))
            at += 1
            if current is None or current.hunks:
                if current is not None:
                    yield current
                current = FileChange(new or old)
            current.path, current.old_path = new or old, old or new
            current.kind = "added" if not old else "deleted" if not new else current.kind
        elif current is not None and line.startswith("@@ ") and (header := _HUNK.match(line)):
            body, at = _hunk_lines(lines, at, int(header[1] or 1), int(header[2] or 1))
            current.hunks.append(Hunk(line, body))
        elif current is not None:
            _read_header(current, line)
    if current is not None:
        yield current


def _read_header(change: FileChange, line: str) -> None:
    """Take what an extended header line of git says about a file."""
    if line.startswith("new file mode"):
        change.kind = "added as a link" if line.endswith("120000") else "added"
    elif line.startswith("deleted file mode"):
        change.kind = "deleted"
    elif line.startswith("rename to "):
        change.kind = "renamed"
    elif line.startswith(("GIT binary patch", "Binary files ")):
        change.is_binary = True


def _hunk_lines(lines: Sequence[str], at: int, old: int, new: int) -> tuple[tuple[str, ...], int]:
    """The lines of a hunk, by their counts; models often miscount, so it also ends where another begins."""
    start = at
    while at < len(lines):
        line = lines[at]
        sign = line[:1]
        if sign not in ("+", "-", " ", "\\", ""):
            break
        if (old <= 0 and new <= 0) and (sign == "" or line.startswith("--- ")):
            break
        if sign == "" and at == len(lines) - 1:
            break
        old -= sign in ("-", " ", "")
        new -= sign in ("+", " ", "")
        at += 1
    return tuple(lines[start:at]), at


def _path(text: str, strip: int) -> str:
    """The path of a header line; empty for /dev/null."""
    path = text.partition("\t")[0].strip().strip('"')
    if path == "/dev/null":
        return ""
    return path[2:] if strip and path[:2] in ("a/", "b/") else path


# Views


def patch_signature(candidate: Candidate) -> str | None:
    """A digest of a patch without line numbers, context beyond one line, and trailing white space."""
    patch = read_patch(candidate)
    if patch is None:
        return None
    listed = sorted(
        (change.path, change.kind, change.old_path if change.kind == "renamed" else "", _edits(change))
        for change in changes_of(patch)
    )
    if any(change.is_binary for change in changes_of(patch)):
        return sha256(patch.diff.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    data = json.dumps(listed).encode()
    return sha256(data).hexdigest()[:16] if listed else None


def _edits(change: FileChange) -> list[tuple[str, list[str], list[str], str]]:
    """Each run of changed lines: the line before it, what is removed, what is added, the line after it."""
    edits = []
    for hunk in change.hunks:
        before, removed, added = "", list[str](), list[str]()
        for line in (*hunk.lines, " "):
            sign, text = line[:1], line[1:].rstrip()
            if sign == "-":
                removed.append(text)
            elif sign == "+":
                added.append(text)
            elif sign != "\\":
                if removed != added:
                    edits.append((before, removed, added, text))
                before, removed, added = text, [], []
    return edits


def patch_summary(candidate: Candidate) -> str:
    """The files a patch touches, its size, the headers of its hunks, and the changed lines."""
    patch = read_patch(candidate)
    if patch is None:
        return view_named("general-summary")(candidate)
    changes = changes_of(patch)
    hunks = sum(len(change.hunks) for change in changes)
    total = f"+{sum(change.added for change in changes)} -{sum(change.removed for change in changes)} lines"
    pieces = [f"{len(changes)} files, {hunks} hunks, {total}"]
    pieces += [
        f"{change.path}: {_kind(change)}, +{change.added} -{change.removed}" for change in changes[:50]
    ]
    if patch.explanation:
        pieces.append(cut(patch.explanation, EXPLANATION_CHARACTERS))
    pieces += islice(_changed_lines(changes), PARTIAL_CHARACTERS)
    view, whole = "\n".join(pieces), patch_full(candidate)
    if len(view) > PARTIAL_CHARACTERS:
        view = f"{view[:PARTIAL_CHARACTERS].rstrip()}\n{PATCH_CUT}"
    return view if len(view) < len(whole) else whole


def _changed_lines(changes: Iterable[FileChange]) -> Iterator[str]:
    for change in changes:
        yield f"--- {change.path}"
        for hunk in change.hunks:
            if hunk.header:
                yield _line(hunk.header)
            yield from (_line(line) for line in hunk.lines if line[:1] in ("+", "-"))


def _kind(change: FileChange) -> str:
    kind = f"renamed from {change.old_path}" if change.kind == "renamed" else change.kind
    return f"{kind}, binary" if change.is_binary else kind


def _line(text: str) -> str:
    return text if len(text) <= LONGEST_LINE else text[:LONGEST_LINE] + LINE_CUT


def patch_full(candidate: Candidate) -> str:
    """The whole candidate; with the lines around each change if the repository is known."""
    context = "" if candidate.found is None else candidate.found.context
    patch = read_patch(candidate)
    if patch is None or (not context and not patch.files):
        return view_named("full")(candidate)
    shown = context or "\n".join(
        f"=== {path}\n{'(deleted)' if text is None else text}" for path, text in patch.files
    )
    return "\n\n".join(piece for piece in (patch.explanation, shown.strip("\n")) if piece)
