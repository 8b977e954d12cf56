"""Case files of any supported format; the format is detected from the content, not the file name."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
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
from caps.datasets.arrow import count_rows
from caps.datasets.case_files import cases_in, cases_in_rows, count_lines, present
from caps.datasets.fields import group_rows, parse_map, understand
from caps.datasets.inspect_logs import read_eval, read_json_log
from caps.datasets.logs import read_batch, read_results, read_samples
from caps.datasets.reading import (
    Row,
    decode,
    is_parquet,
    is_table,
    is_zip,
    join_lines,
    kind_of,
    lines,
    parquet_rows,
    peek_line,
    table_rows,
)
from caps.datasets.verdicts import POOL_FIELDS, is_recorded, read_pools
from caps.evidence.domains import agree_on_domain
from caps.files import is_stream, split_paths

Read = Callable[[Iterable[bytes], str], Iterator[Case | InputError]]
AUTO = "auto"
LINES = (".jsonl", ".jsonl.gz")
ENDINGS = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".eval", ".jsonl.gz", ".json.gz", ".csv.gz")


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


def open_cases(
    path: str,
    format_: str = AUTO,
    *,
    requests: str | None = None,
    fields: str = "",
    bare: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[Case | InputError]:
    """Read the cases of a file, or of all files of a folder, in any supported format.

    `requests` is the input file of a batch, `fields` the setting `map`; `bare` cases need no candidates. How
    the fields of a file in no known format were understood is told to `say`. Cases that state no domain get
    one by a decision about the whole file.
    """
    if format_ not in (AUTO, *FORMATS):
        names = [AUTO, *FORMATS]
        raise SettingError(
            f"unknown format {format_!r}: {nearest(format_, names)}there are {', '.join(names)}"
        )
    reader = _Reader(parse_map(fields), bare, say)
    if len(paths := split_paths(path)) > 1:
        return agree_on_domain(reader.several(paths))
    if not is_stream(path) and Path(path).is_dir():
        return agree_on_domain(reader.folder(path))
    return agree_on_domain(reader.read(path, format_, requests))


class _Reader:
    """Reads files of any format, with the fields that the user named."""

    def __init__(self, stated: Mapping[str, str], bare: bool, say: Callable[[str], None]) -> None:  # noqa: FBT001
        self._stated, self._bare, self._say = stated, bare, say

    def folder(self, path: str) -> Iterator[Case | InputError]:
        """All files of a folder, by name.

        JSON lines and Parquet are read as if all files were one. Otherwise a case without an id is named
        after its file.
        """
        files = sorted(file for file in Path(path).iterdir() if file.name.endswith(ENDINGS))
        streams = [str(file) for file in files if is_stream(file)]
        if streams:
            raise InputError(f"{streams[0]}: is a pipe or a device; a folder of cases may hold files only")
        if not files:
            raise InputError(f"{path}: holds no file that ends in {', '.join(ENDINGS)}")
        names = [str(file) for file in files]
        if all(name.endswith(LINES) for name in names):
            yield from self._lines(chain.from_iterable(map(lines, names)), path, AUTO, None)
            return
        if all(map(is_parquet, names)):
            yield from self._rows(enumerate(chain.from_iterable(map(parquet_rows, names)), start=1), path)
            return
        yield from self._named(
            [(file.name.partition(".")[0], self.read(str(file), AUTO, None)) for file in files]
        )

    def several(self, paths: Sequence[str]) -> Iterator[Case | InputError]:
        """Several files or folders; a case without an id is named after its file, or folder and file."""
        stems = [Path(path).name.partition(".")[0] for path in paths]
        if len(set(stems)) < len(stems):
            stems = [f"{Path(path).parent.name}-{stem}" for path, stem in zip(paths, stems, strict=True)]
        read = [self.folder(one) if Path(one).is_dir() else self.read(one, AUTO, None) for one in paths]
        yield from self._named(list(zip(stems, read, strict=True)))

    def _named(
        self, sources: Sequence[tuple[str, Iterator[Case | InputError]]]
    ) -> Iterator[Case | InputError]:
        """The cases of several files, with ids that are unique among them."""
        seen: set[str] = set()
        for stem, cases in sources:
            for case in cases:
                if isinstance(case, InputError):
                    yield case
                    continue
                name = f"{stem}-{case.id}" if case.id.isdecimal() else case.id
                if name in seen:
                    yield InputError(
                        f"{case.where or stem}: id: {name!r} is in an earlier file or line; ids must be "
                        "unique (caps import FILE FILE merges the candidates of the same problems)"
                    )
                else:
                    seen.add(name)
                    yield replace(case, id=name)

    def read(self, path: str, format_: str, requests: str | None) -> Iterator[Case | InputError]:
        """Read one file."""
        if is_zip(path) and format_ in (AUTO, "inspect"):
            yield from read_eval(path)
            return
        if format_ in (AUTO, "caps") and is_parquet(path):
            yield from self._rows(enumerate(parquet_rows(path), start=1), path)
            return
        if format_ in (AUTO, "caps") and is_table(path):
            yield from self._rows(enumerate(table_rows(path), start=2), path)
            return
        if format_ == AUTO and path.removesuffix(".gz").endswith(".txt"):
            yield from self._texts(path)
            return
        yield from self._lines(lines(path), path, format_, requests)

    def _lines(
        self, all_lines: Iterator[bytes], path: str, format_: str, requests: str | None
    ) -> Iterator[Case | InputError]:
        first, source = peek_line(all_lines)
        if is_recorded(first):
            raise InputError(
                f"{path}: contains recorded verdicts, not cases: pass it as --recorded FILE and give a case "
                "file"
            )
        if format_ == AUTO and (first == b"{" or first.startswith(b"[")):
            yield from self._document(source, path)
            return
        name = self._format_of(decode_line(first)) if format_ == AUTO else format_
        if name == "caps" and (row := self._unusual(first)) is not None:
            numbered = (
                (place, decode_line(line)) for place, line in enumerate(source, start=1) if line.strip()
            )
            yield from self._rows(numbered, path, row)
        elif name == "caps":
            yield from cases_in(source, path, bare=self._bare)
        elif requests is None:
            yield from FORMATS[name].read(source, path)
        elif name == "openai-batch":
            yield from read_batch(source, path, requests)
        else:
            raise SettingError(f"--requests applies to openai-batch only; the format of {path} is {name}")

    def _format_of(self, row: Row | InputError) -> str:
        """The format by the fields of the first row; messages beside candidates are a problem, not a run."""
        found = "caps" if isinstance(row, InputError) else _by_fields(row)
        if found != "chat" or isinstance(row, InputError):
            return found
        try:
            understand(row, self._stated, bare=self._bare)
        except InputError:
            return found
        return "caps"

    def _unusual(self, first: bytes) -> Row | None:
        """The first row, unless it is a case under the names of caps, or cannot be understood otherwise."""
        row = decode_line(first)
        if isinstance(row, InputError):
            return None
        usual = "problem" in row and ("candidates" in row or self._bare)
        if usual and not self._stated:
            return None
        try:
            understand(row, self._stated, bare=self._bare)
        except InputError:  # said of the file, unless it begins with a faulty case
            return row if self._stated or not {"problem", "candidates"} & row.keys() else None
        return row

    def _rows(
        self, rows: Iterator[tuple[int, Row | InputError]], path: str, first: Row | None = None
    ) -> Iterator[Case | InputError]:
        """Rows under any names, one per case or one per candidate."""
        if first is None:
            head = next(rows, None)
            if head is None:
                raise InputError(f"{path}: has no rows")
            if isinstance(head[1], InputError):
                said = str(head[1])
                raise InputError(said if said.startswith(path) else f"{path}:{head[0]}: {said}")
            first, rows = head[1], chain([head], rows)
        try:
            fields = understand(present(first), self._stated, bare=self._bare)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        self._say(f"{path}: {fields.describe()}")
        if fields.candidate is None:
            yield from cases_in_rows(rows, path, fields.case_row, bare=self._bare)
        else:
            yield from cases_in_rows(group_rows(rows, fields), path, bare=self._bare)

    def _document(self, source: Iterator[bytes], path: str) -> Iterator[Case | InputError]:
        """One JSON value over several lines: a log of Inspect, results of LiveCodeBench, or rows."""
        whole = join_lines(source, path)
        try:
            value = decode(whole)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        rows = value if isinstance(value, list) else [value]
        known = self._format_of(rows[0]) if rows and isinstance(rows[0], dict) else "caps"
        if known != "caps":
            yield from FORMATS[known].read(whole.splitlines(keepends=True), path)
            return
        numbered = (
            (place, row if isinstance(row, dict) else InputError(f"must be an object, not {kind_of(row)}"))
            for place, row in enumerate(rows, start=1)
        )
        yield from self._rows(numbered, path)

    def _texts(self, path: str) -> Iterator[Case | InputError]:
        """A problem per line."""
        if not self._bare:
            raise InputError(f"{path}: plain text holds problems, not candidates: caps sample reads it")
        self._say(f"{path}: a problem per line")
        rows = (
            (place, {"problem": line.decode("utf-8", "replace").strip()})
            for place, line in enumerate(lines(path), 1)
        )
        yield from cases_in_rows(((place, row) for place, row in rows if row["problem"]), path, bare=True)


def decode_line(line: bytes) -> Row | InputError:
    """The object on a line; an error is returned."""
    try:
        row = decode(line)
    except InputError as error:
        return error
    return row if isinstance(row, dict) else InputError(f"must be an object, not {kind_of(row)}")


def detect_format(first: bytes) -> str:
    """Detect the format from the first line; the fallback is `caps`."""
    row = decode_line(first)
    return "caps" if isinstance(row, InputError) else _by_fields(row)


def _by_fields(row: Row) -> str:
    for name, format_ in FORMATS.items():
        if any(fields <= row.keys() for fields in format_.known_by):
            return name
    return "caps"


def count_cases(path: str, fields: str = "") -> int | None:
    """The number of cases of a file, if it is known without reading them."""
    if len(paths := split_paths(path)) > 1:
        counts = [count_cases(one, fields) for one in paths]
        return None if None in counts else sum(one or 0 for one in counts)
    if is_stream(path) or "://" in path or Path(path).is_dir() or is_zip(path) or is_table(path):
        return None
    if is_parquet(path):
        return count_rows(path)
    first, _ = peek_line(lines(path))
    row = decode_line(first)
    if isinstance(row, InputError) or detect_format(first) != "caps":
        return None
    try:
        return count_lines(path) if _one_per_case(row, fields) else None
    except InputError:
        return None


def _one_per_case(row: Row, fields: str) -> bool:
    return "candidates" in row or understand(row, parse_map(fields), bare=True).candidate is None


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
