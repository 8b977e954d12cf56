"""Files of candidates, whoever wrote them: the format is told from what stands in them, not from a name."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from caps.core.errors import InputError, SettingError
from caps.core.settings import nearest
from caps.core.types import Case
from caps.datasets.case_files import cases_in, cases_in_rows, count_lines
from caps.datasets.inspect_logs import read_eval, read_json_log
from caps.datasets.logs import read_batch, read_results, read_samples
from caps.datasets.reading import Row, count_rows, decode, is_parquet, is_zip, lines, parquet_rows, peeked
from caps.datasets.verdicts import POOL_FIELDS, is_recorded, read_pools
from caps.files import is_stream

Read = Callable[[Iterable[bytes], str], Iterator[Case | InputError]]
AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Format:
    """A way to write candidates down: what it is in one line, and the fields its first object is known by."""

    about: str
    known_by: tuple[frozenset[str], ...]
    read: Read


FORMATS = {
    "pools": Format("cases with recorded verdicts of several judges", POOL_FIELDS, read_pools),
    "caps": Format("our own: one case a line", (frozenset({"candidates"}),), cases_in),
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
}


def open_cases(path: str, format_: str = AUTO, *, requests: str | None = None) -> Iterator[Case | InputError]:
    """Read the cases of a file in any of the formats; `requests` is the input file of a batch."""
    if format_ not in (AUTO, *FORMATS):
        names = [AUTO, *FORMATS]
        raise SettingError(
            f"no format is called {format_!r}: {nearest(format_, names)}there are {', '.join(names)}"
        )
    return _opened(path, format_, requests)


def _opened(path: str, format_: str, requests: str | None) -> Iterator[Case | InputError]:
    if is_zip(path) and format_ in (AUTO, "inspect"):
        yield from read_eval(path)
        return
    if format_ in (AUTO, "caps") and is_parquet(path):
        yield from cases_in_rows(parquet_rows(path), path)
        return
    first, source = peeked(lines(path))
    if is_recorded(first):
        raise InputError(
            f"{path}: holds recorded verdicts, not cases: give it as --recorded FILE, beside the cases"
        )
    name = sniff(first) if format_ == AUTO else format_
    if requests is None:
        yield from FORMATS[name].read(source, path)
    elif name == "openai-batch":
        yield from read_batch(source, path, requests)
    else:
        raise SettingError(f"--requests goes with openai-batch alone; {path} is in the format {name}")


def sniff(first: bytes) -> str:
    """The format whose first line this is; what is none of the others is ours, and read strictly."""
    if first.startswith(b"["):
        return "livecodebench"
    if first == b"{":
        return "inspect"  # written over many lines, as no format of one object a line is
    try:
        row = decode(first)
    except InputError:
        return "caps"
    return _by_fields(row) if isinstance(row, dict) else "caps"


def _by_fields(row: Row) -> str:
    for name, format_ in FORMATS.items():
        if any(fields <= row.keys() for fields in format_.known_by):
            return name
    return "caps"


def count_cases(path: str) -> int | None:
    """How many cases there are to come, where that is known without reading them."""
    if is_stream(path) or "://" in path or Path(path).is_dir() or is_zip(path):
        return None
    if is_parquet(path):
        return count_rows(path)
    first, _ = peeked(lines(path))
    return count_lines(path) if sniff(first) == "caps" else None


def merge(sources: Iterable[Iterable[Case | InputError]]) -> Iterator[Case | InputError]:
    """Put together what several files have on the same problems: candidates in the order of the files."""
    merged: dict[str, Case] = {}
    for source in sources:
        for case in source:
            if isinstance(case, InputError):
                yield case
                continue
            known = merged.get(case.id)
            if known is not None and known.problem != case.problem:
                yield InputError(f"case {case.id!r}: has another problem in an earlier file")
            elif known is not None:
                merged[case.id] = replace(known, candidates=known.candidates + case.candidates)
            else:
                merged[case.id] = case
    yield from merged.values()
