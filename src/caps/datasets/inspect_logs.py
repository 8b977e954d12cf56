"""Inspect logs (`.eval` archives and `.json` files); the epochs of a sample become the candidates of a case.

Archives are read in memory, so member names cannot escape a folder, and every member has a size limit.
"""

import json
import struct
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from caps.core.errors import InputError
from caps.core.types import Candidate, Case, Problem
from caps.datasets.fields import find
from caps.datasets.logs import parse_choice, parse_problem, resolve_attachment
from caps.datasets.reading import (
    LIMITS,
    Limits,
    Row,
    decode,
    decode_row,
    join_lines,
    objects,
    parsed_rows,
    required,
    text_or_number,
)
from caps.evidence.domains import guess_domain
from caps.registry import DEFAULT_DOMAIN

_ZSTANDARD = 93  # the method current versions of Inspect use
_COMPRESSION_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, _ZSTANDARD}
_END, _END64 = b"PK\x05\x06", b"PK\x06\x06"  # end-of-central-directory records
_LONGEST_END = 22 + 65535 + 20 + 56
_SIZE_IN_ZIP64 = 0xFFFFFFFF
_SHORTEST_ENTRY = 46 + len("samples/1_epoch_1.json")
_CHUNK = 1 << 20
_TASK_ROLES = ("system", "user")
_CORRECT_BY_SCORE = {"C": True, "I": False}

Sample = tuple[Problem, dict[int, tuple[Candidate, ...]], Row]


def read_eval(path: str, limits: Limits = LIMITS) -> Iterator[Case | InputError]:
    """Read the cases of an `.eval` archive."""
    yield from _cases(_members(path, limits), path)


def read_json_log(lines: Iterable[bytes], path: str, limits: Limits = LIMITS) -> Iterator[Case | InputError]:
    """Read the cases of a `.json` log."""
    try:
        log = decode(join_lines(lines, path, limits))
        samples = objects(required({"log": log}, "log", dict), "samples")
    except InputError as error:
        raise InputError(f"{path}: not an Inspect log: {error}") from None
    yield from _cases(((f"{path}: samples[{i}]", one) for i, one in enumerate(samples)), path)


def _members(path: str, limits: Limits) -> Iterator[tuple[str, Row | InputError]]:
    total = 0
    try:
        _check_member_count(path, limits)
        with _open_archive(path) as archive:
            for member in archive.infolist():
                if member.filename.startswith("samples/") and member.filename.endswith(".json"):
                    where = f"{path}: {member.filename}"
                    unpacked = _unpack(archive, member, where, limits)
                    if isinstance(unpacked, InputError):
                        total += limits.packed
                        yield where, unpacked
                    else:
                        total += len(unpacked)
                        yield where, decode_row(unpacked, where)
                    if total > limits.archive:
                        raise InputError(
                            f"{where}: the archive unpacks to more than {limits.archive:,} bytes"
                        )
    except InputError:
        raise
    except Exception as error:  # the backport has another BadZipFile class
        raise InputError(f"{path}: the archive cannot be read ({error})") from None


def _open_archive(path: str) -> zipfile.ZipFile:
    """Open an archive whose members may be Zstandard-compressed; Python supports that from 3.14 on."""
    if sys.version_info >= (3, 14):
        return zipfile.ZipFile(path)
    from backports.zstd import zipfile as backported  # noqa: PLC0415  # loaded only for archives

    return backported.ZipFile(path)  # type: ignore[return-value]  # the class of a later Python


def _check_member_count(path: str, limits: Limits) -> None:
    """Refuse an archive with too many members, judged by the size of its central directory.

    The members are not listed first. A forged size only makes the archive unreadable, since the directory
    must lie within the file.
    """
    with Path(path).open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _LONGEST_END))
        tail = file.read()
        position = tail.rfind(_END)
        if position < 0 or position + 20 > len(tail):
            return
        (directory_size,) = struct.unpack_from("<L", tail, position + 12)
        if directory_size == _SIZE_IN_ZIP64:
            (directory_size,) = (
                struct.unpack_from("<Q", tail, position64 + 40)
                if (position64 := tail.rfind(_END64)) >= 0
                else (size,)
            )
    if directory_size > limits.members * _SHORTEST_ENTRY:
        raise InputError(f"{path}: has more than {limits.members:,} members, or their names are too long")


def _unpack(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str, limits: Limits
) -> bytes | InputError:
    if member.compress_type not in _COMPRESSION_METHODS:
        return InputError(f"{where}: unsupported compression method {member.compress_type}")
    data = bytearray()
    try:
        with archive.open(member) as file:
            while chunk := file.read(_CHUNK):
                data += chunk
                if len(data) > limits.packed:
                    return InputError(f"{where}: unpacks to more than {limits.packed:,} bytes")
    except Exception as error:  # any error of the decompressor
        return InputError(f"{where}: cannot be unpacked ({error})")
    return bytes(data)


def _cases(rows: Iterable[tuple[str, Row | InputError]], path: str) -> Iterator[Case | InputError]:
    samples: dict[str, Sample] = {}
    yield from parsed_rows(rows, lambda row: _add_sample(row, samples))
    if not samples:
        yield InputError(f"{path}: no sample has an output")
    for name, (problem, epochs, extra) in samples.items():
        candidates = tuple(candidate for epoch in sorted(epochs) for candidate in epochs[epoch])
        # The target of an agent's task is no answer that its messages could be compared with.
        runs = all(candidate.text.startswith("[{") for candidate in candidates)
        domain = DEFAULT_DOMAIN if runs else guess_domain(extra, candidates)
        yield Case(name, problem, candidates, domain, guessed=True, extra=extra)


def _add_sample(row: Row, samples: dict[str, Sample]) -> None:
    name, epoch = text_or_number(row, "id"), row.get("epoch", 1)
    attachments = row.get("attachments")
    attachments = attachments if isinstance(attachments, dict) else None
    output = row.get("output")
    if not isinstance(output, dict) or not output.get("choices"):
        reason = str(find(row, "error.message") or "no error is recorded")[:200]
        raise InputError(f"sample {name!r}, epoch {epoch}: has no output ({reason})")
    candidates = _chosen_from(row, attachments)
    if not candidates:
        candidates = tuple(
            parse_choice(choice, f"output.choices[{i}]", attachments)
            for i, choice in enumerate(objects(output, "choices"))
        )
        if (run := _agent_run(row, attachments)) is not None:
            candidates = (Candidate(run),)
        if len(candidates) == 1:
            candidates = (_labelled(candidates[0], row.get("scores")),)
    problem = parse_problem(row.get("input"), "input", attachments)
    earlier, epochs, _ = samples.setdefault(name, (problem, {}, _extra(row)))
    if earlier != problem:
        raise InputError(f"id: {name!r} has a different input in an earlier sample")
    if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch in epochs:
        raise InputError(f"epoch: {epoch!r:.40} of sample {name!r} must be an integer that occurs once")
    epochs[epoch] = candidates


def _chosen_from(row: Row, attachments: Row | None) -> tuple[Candidate, ...]:
    """The candidates of the solver `caps/best_of_n`; only the chosen one has been scored."""
    texts, winner = find(row, "metadata.caps.candidates"), find(row, "metadata.caps.winner")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return ()
    candidates = [Candidate(resolve_attachment(text, attachments)) for text in texts]
    if isinstance(winner, int) and 0 <= winner < len(candidates):
        candidates[winner] = _labelled(candidates[winner], row.get("scores"))
    return tuple(candidates)


def _agent_run(row: Row, attachments: Row | None) -> str | None:
    """The messages of a sample as a run, if its model called tools."""
    messages = row.get("messages")
    if not isinstance(messages, list) or not any(
        isinstance(one, dict) and one.get("tool_calls") for one in messages
    ):
        return None
    resolved = [
        {**one, "content": resolve_attachment(one["content"], attachments)}
        if isinstance(one.get("content"), str)
        else one
        for one in objects(row, "messages")
    ]
    start = next((place for place, one in enumerate(resolved) if one.get("role") not in _TASK_ROLES), 0)
    return json.dumps(resolved[start:], ensure_ascii=False)


def _labelled(candidate: Candidate, scores: object) -> Candidate:
    """The candidate with the label of the first scorer that gives right or wrong."""
    for score in scores.values() if isinstance(scores, dict) else ():
        value = score.get("value") if isinstance(score, dict) else None
        if isinstance(value, str) and value in _CORRECT_BY_SCORE:
            return Candidate(candidate.text, logprob=candidate.logprob, correct=_CORRECT_BY_SCORE[value])
        if isinstance(value, int | float) and value in (0, 1):
            return Candidate(candidate.text, logprob=candidate.logprob, correct=bool(value))
    return candidate


def _extra(row: Row) -> Row:
    target = row.get("target")
    if isinstance(target, list) and len(target) == 1:
        target = target[0]
    metadata = row.get("metadata")
    if isinstance(metadata, dict):
        metadata = {name: value for name, value in metadata.items() if name != "caps"}
    fields = {"answer": target, "choices": row.get("choices"), "metadata": metadata}
    return {name: value for name, value in fields.items() if value}
