"""Case files of any supported format; the format is detected from the content, not the file name."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from caps.core.errors import InputError, SettingError
from caps.core.settings import nearest
from caps.core.types import Case
from caps.datasets.agent_runs import (
    read_atif,
    read_chats,
    read_mini_swe_agent,
    read_openhands,
    read_swe_agent,
)
from caps.datasets.case_files import cases_in, cases_in_rows, count_lines
from caps.datasets.inspect_logs import read_eval, read_json_log
from caps.datasets.logs import read_batch, read_results, read_samples
from caps.datasets.reading import (
    Row,
    count_rows,
    decode,
    is_parquet,
    is_zip,
    join_lines,
    lines,
    parquet_rows,
    peek_line,
)
from caps.datasets.verdicts import POOL_FIELDS, is_recorded, read_pools
from caps.evidence.domains import agree_on_domain
from caps.files import is_stream

Read = Callable[[Iterable[bytes], str], Iterator[Case | InputError]]
AUTO = "auto"
_OPEN = b"{"


@dataclass(frozen=True, slots=True)
class Format:
    """A file format: a one-line description, the fields that identify its first object, and its reader."""

    about: str
    known_by: tuple[frozenset[str], ...]
    read: Read


FORMATS = {
    "pools": Format("cases with recorded verdicts of several judges", POOL_FIELDS, read_pools),
    "caps": Format("the format of caps: one case per line", (frozenset({"candidates"}),), cases_in),
    "mini-swe-agent": Format(
        "a .traj.json of mini-swe-agent", (frozenset({"messages", "info"}),), read_mini_swe_agent
    ),
    "swe-agent": Format(
        "a .traj of SWE-agent",
        (frozenset({"trajectory", "info"}), frozenset({"trajectory", "history"})),
        read_swe_agent,
    ),
    "openhands": Format(
        "output.jsonl of OpenHands", (frozenset({"instance_id", "instruction", "history"}),), read_openhands
    ),
    "atif": Format(
        "agent trajectories in steps (ATIF), as of terminal-bench",
        (frozenset({"steps", "agent"}), frozenset({"steps", "schema_version"})),
        read_atif,
    ),
    "openai-batch": Format(
        "batch output of OpenAI or vllm run-batch",
        (frozenset({"custom_id", "response"}), frozenset({"custom_id", "body"})),
        read_batch,
    ),
    "lm-eval": Format(
        "samples_*.jsonl of lm-evaluation-harness", (frozenset({"doc_id", "resps"}),), read_samples
    ),
    "inspect": Format("logs of Inspect, .eval or .json", (frozenset({"eval", "samples"}),), read_json_log),
    "livecodebench": Format(
        "*_eval_all.json of LiveCodeBench", (frozenset({"question_id", "code_list"}),), read_results
    ),
    "chat": Format(
        "runs of agents in OpenAI's chat format, one on each line", (frozenset({"messages"}),), read_chats
    ),
}


def open_cases(path: str, format_: str = AUTO, *, requests: str | None = None) -> Iterator[Case | InputError]:
    """Read the cases of a file in any supported format; `requests` is the input file of a batch.

    Cases that state no domain get one by a decision about the whole file.
    """
    if format_ not in (AUTO, *FORMATS):
        names = [AUTO, *FORMATS]
        raise SettingError(
            f"unknown format {format_!r}: {nearest(format_, names)}there are {', '.join(names)}"
        )
    return agree_on_domain(_read(path, format_, requests))


def _read(path: str, format_: str, requests: str | None) -> Iterator[Case | InputError]:
    if is_zip(path) and format_ in (AUTO, "inspect"):
        yield from read_eval(path)
        return
    if format_ in (AUTO, "caps") and is_parquet(path):
        yield from cases_in_rows(parquet_rows(path), path)
        return
    first, source = peek_line(lines(path))
    if is_recorded(first):
        raise InputError(
            f"{path}: contains recorded verdicts, not cases: pass it as --recorded FILE and give a case file"
        )
    name = format_
    if format_ == AUTO and first == _OPEN:
        every = list(source)
        name, source = _format_of_object(every, path), iter(every)
    elif format_ == AUTO:
        name = detect_format(first)
    if requests is None:
        yield from FORMATS[name].read(source, path)
    elif name == "openai-batch":
        yield from read_batch(source, path, requests)
    else:
        raise SettingError(f"--requests applies to openai-batch only; the format of {path} is {name}")


def detect_format(first: bytes) -> str:
    """Detect the format from the first line; the fallback is `caps`, which is read strictly."""
    if first.startswith(b"["):
        return "livecodebench"
    if first == _OPEN:
        return "inspect"  # one object over several lines, most often
    try:
        row = decode(first)
    except InputError:
        return "caps"
    return _by_fields(row) if isinstance(row, dict) else "caps"


def _format_of_object(lines: Iterable[bytes], path: str) -> str:
    """The format of a file that is one object over several lines: not `caps`, whose lines are objects."""
    usual = detect_format(_OPEN)  # its reader says what is wrong
    try:
        row = decode(join_lines(lines, path))
    except InputError:
        return usual
    found = _by_fields(row) if isinstance(row, dict) else "caps"
    return usual if found == "caps" else found


def _by_fields(row: Row) -> str:
    for name, format_ in FORMATS.items():
        if any(fields <= row.keys() for fields in format_.known_by):
            return name
    return "caps"


def count_cases(path: str) -> int | None:
    """The number of cases of a file, if it is known without reading them."""
    if is_stream(path) or "://" in path or Path(path).is_dir() or is_zip(path):
        return None
    if is_parquet(path):
        return count_rows(path)
    first, _ = peek_line(lines(path))
    return count_lines(path) if detect_format(first) == "caps" else None


def merge(sources: Iterable[Iterable[Case | InputError]]) -> Iterator[Case | InputError]:
    """Merge the candidates of several files by case id, in the order of the files."""
    merged: dict[str, Case] = {}
    for source in sources:
        for case in source:
            if isinstance(case, InputError):
                yield case
                continue
            known = merged.get(case.id)
            if known is not None and known.problem != case.problem:
                yield InputError(f"case {case.id!r}: has a different problem in an earlier file")
            elif known is not None:
                merged[case.id] = replace(known, candidates=known.candidates + case.candidates)
            else:
                merged[case.id] = case
    yield from merged.values()
