"""Logs of Inspect: `.eval` archives and `.json` files; the epochs of a sample are the candidates of a case.

Nothing of an archive is written to disk, so its names cannot lead astray; no member is unpacked past a limit.
"""

import struct
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from caps.core.errors import InputError
from caps.core.types import Candidate, Case, Problem
from caps.datasets.logs import candidate_of, problem_of
from caps.datasets.reading import LIMITS, Limits, Row, decode, label, objects, wanted, whole
from caps.evidence.domains import guess_domain

_ZSTANDARD = 93  # how Inspect packs its logs today
_PACKINGS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, _ZSTANDARD}
_END, _END64 = b"PK\x05\x06", b"PK\x06\x06"  # the records behind the list of members
_LONGEST_END = 22 + 65535 + 20 + 56
_IN_ZIP64 = 0xFFFFFFFF
_SHORTEST_ENTRY = 46 + len("samples/1_epoch_1.json")
_CHUNK = 1 << 20
_RIGHT = {"C": True, "I": False}

Sample = tuple[Problem, dict[int, tuple[Candidate, ...]], Row]


def read_eval(path: str, limits: Limits = LIMITS) -> Iterator[Case | InputError]:
    """Read the cases of an archive."""
    yield from _cases(_members(path, limits), path)


def read_json_log(lines: Iterable[bytes], path: str, limits: Limits = LIMITS) -> Iterator[Case | InputError]:
    """Read the cases of a JSON log."""
    try:
        log = decode(whole(lines, path, limits))
        samples = objects(wanted({"log": log}, "log", dict), "samples")
    except InputError as error:
        raise InputError(f"{path}: one object a file is a log of Inspect, but {error}") from None
    yield from _cases(((f"{path}: samples[{i}]", one) for i, one in enumerate(samples)), path)


def _members(path: str, limits: Limits) -> Iterator[tuple[str, Row | InputError]]:
    total = 0
    try:
        _refuse_crowd(path, limits)
        with _open_archive(path) as archive:
            for member in archive.infolist():
                if member.filename.startswith("samples/") and member.filename.endswith(".json"):
                    where = f"{path}: {member.filename}"
                    unpacked = _unpacked(archive, member, where, limits)
                    if isinstance(unpacked, InputError):
                        total += limits.packed
                        yield where, unpacked
                    else:
                        total += len(unpacked)
                        yield where, _sample(unpacked, where)
                    if total > limits.archive:
                        raise InputError(f"{where}: more than {limits.archive:,} bytes are unpacked by here")
    except InputError:
        raise
    except Exception as error:  # the backport has a BadZipFile of its own
        raise InputError(f"{path}: not an archive that can be read ({error})") from None


def _open_archive(path: str) -> zipfile.ZipFile:
    """Open an archive whose members may be packed with Zstandard, which Python reads itself from 3.14 on."""
    if sys.version_info >= (3, 14):
        return zipfile.ZipFile(path)
    from backports.zstd import zipfile as backported  # noqa: PLC0415  # loaded by those who read an archive

    return backported.ZipFile(path)  # type: ignore[return-value]  # the same class of a later Python


def _refuse_crowd(path: str, limits: Limits) -> None:
    """Refuse an archive of too many members before they are listed, by the size of the list at its end.

    The list must lie in the file itself, so a false size in the record behind it only makes it unreadable.
    """
    with Path(path).open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _LONGEST_END))
        tail = file.read()
        place = tail.rfind(_END)
        if place < 0 or place + 20 > len(tail):
            return
        (listed,) = struct.unpack_from("<L", tail, place + 12)
        if listed == _IN_ZIP64:
            (listed,) = (
                struct.unpack_from("<Q", tail, place64 + 40)
                if (place64 := tail.rfind(_END64)) >= 0
                else (size,)
            )
    if listed > limits.members * _SHORTEST_ENTRY:
        raise InputError(f"{path}: holds more than {limits.members:,} members, or their names are too long")


def _unpacked(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str, limits: Limits
) -> bytes | InputError:
    if member.compress_type not in _PACKINGS:
        return InputError(f"{where}: packed in a way Inspect does not use (method {member.compress_type})")
    kept = bytearray()
    try:
        with archive.open(member) as file:
            while chunk := file.read(_CHUNK):
                kept += chunk
                if len(kept) > limits.packed:
                    return InputError(f"{where}: unpacks to more than {limits.packed:,} bytes")
    except Exception as error:  # of whichever library unpacks it
        return InputError(f"{where}: cannot be unpacked ({error})")
    return bytes(kept)


def _sample(data: bytes, where: str) -> Row | InputError:
    try:
        return wanted({"sample": decode(data)}, "sample", dict)  # type: ignore[no-any-return]
    except InputError as error:
        return InputError(f"{where}: {error}")


def _cases(rows: Iterable[tuple[str, Row | InputError]], path: str) -> Iterator[Case | InputError]:
    samples: dict[str, Sample] = {}
    for where, row in rows:
        try:
            if isinstance(row, InputError):
                yield row
            else:
                _add(row, samples)
        except InputError as error:
            yield InputError(f"{where}: {error}")
    if not samples:
        yield InputError(f"{path}: no sample with an output in it")
    for name, (problem, epochs, extra) in samples.items():
        candidates = tuple(one for _, drawn in sorted(epochs.items()) for one in drawn)
        yield Case(name, problem, candidates, guess_domain(extra, candidates), guessed=True, extra=extra)


def _add(row: Row, samples: dict[str, Sample]) -> None:
    name, epoch = label(row, "id"), row.get("epoch", 1)
    attached = row.get("attachments")
    attached = attached if isinstance(attached, dict) else None
    output = row.get("output")
    if not isinstance(output, dict) or not output.get("choices"):
        told = row.get("error")
        words = told.get("message") if isinstance(told, dict) else None
        raise InputError(
            f"sample {name!r}, epoch {epoch}: has no output ({str(words or 'no error told')[:200]})"
        )
    drawn = tuple(
        candidate_of(choice, f"output.choices[{i}]", attached)
        for i, choice in enumerate(objects(output, "choices"))
    )
    if len(drawn) == 1:
        drawn = (_labelled(drawn[0], row.get("scores")),)
    problem = problem_of(row.get("input"), "input", attached)
    known, epochs, _ = samples.setdefault(name, (problem, {}, _extra(row)))
    if known != problem:
        raise InputError(f"id: {name!r} has another input in an earlier sample")
    if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch in epochs:
        raise InputError(f"epoch: {epoch!r:.40} of sample {name!r} must be a number that is not there yet")
    epochs[epoch] = drawn


def _labelled(candidate: Candidate, scores: object) -> Candidate:
    """With the verdict of the first scorer that says right or wrong."""
    for score in scores.values() if isinstance(scores, dict) else ():
        value = score.get("value") if isinstance(score, dict) else None
        if isinstance(value, str) and value in _RIGHT:
            return Candidate(candidate.text, logprob=candidate.logprob, correct=_RIGHT[value])
        if isinstance(value, int | float) and value in (0, 1):
            return Candidate(candidate.text, logprob=candidate.logprob, correct=bool(value))
    return candidate


def _extra(row: Row) -> Row:
    target = row.get("target")
    if isinstance(target, list) and len(target) == 1:
        target = target[0]
    told = {"answer": target, "choices": row.get("choices"), "metadata": row.get("metadata")}
    return {name: value for name, value in told.items() if value}
