"""Case files of any supported format; the format is detected from the content, not the file name."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path, PurePath

from caps.core.errors import InputError, SettingError
from caps.core.settings import nearest
from caps.core.types import Case
from caps.datasets.arrow import count_rows
from caps.datasets.case_files import cases_in, cases_in_rows, count_lines, present
from caps.datasets.fields import (
    fields_of,
    find,
    group_rows,
    has_labels_beside,
    parse_map,
    understand,
)
from caps.datasets.inspect_logs import read_eval, read_json_log
from caps.datasets.logs import read_batch, read_results, read_samples
from caps.datasets.reading import (
    Row,
    decode,
    decode_row,
    is_parquet,
    is_table,
    is_zip,
    join_lines,
    line_rows,
    lines,
    parquet_rows,
    peek_line,
    row_or_error,
    table_rows,
)
from caps.datasets.verdicts import is_recorded
from caps.evidence.domains import agree_on_domain
from caps.files import is_stream, split_paths
from caps.registry import FORMATS as PLUGIN_FORMATS
from caps.registry import installs, names, resolve

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFormat:
    """A log format of a plug-in, whose rows are JSON objects; entry points are in the group `caps.formats`.

    A file is one object, or a list of them, or has one on each line. `parse` makes a case of a row and the
    name of the file, or raises an `InputError`; cases with the same id become one. `known_by` are sets of
    fields; a file whose first object has all fields of a set has this format, unless a built-in one fits.
    """

    about: str
    known_by: tuple[frozenset[str], ...]
    parse: Callable[[Row, str], Case]


FORMATS = {
    "caps": Format("the format of caps: one case per line", (frozenset({"candidates"}),), cases_in),
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


def format_names() -> list[str]:
    """The names of all formats: the built-in ones, then those of installed packages."""
    return [*FORMATS, *names(PLUGIN_FORMATS)]


def format_named(name: str) -> Format:
    """Find a format by its name."""
    if name in FORMATS:
        return FORMATS[name]
    log = resolve(PLUGIN_FORMATS, name)
    if not isinstance(log, LogFormat):
        raise SettingError(f"format {name!r} is {log!r:.80}: not a caps.LogFormat")
    return Format(log.about, log.known_by, partial(_read_log, log.parse))


def _read_log(
    parse: Callable[[Row, str], Case], source: Iterable[bytes], path: str
) -> Iterator[Case | InputError]:
    """The cases of a log: one object, a list of objects, or one object on each line."""
    file_name = PurePath(path).name.partition(".")[0]

    def cases() -> Iterator[Case | InputError]:
        for where, row in _log_rows(list(source), path):
            if isinstance(row, InputError):
                yield row
                continue
            try:
                yield replace(parse(row, file_name), where=where)
            except InputError as error:
                yield InputError(f"{where}: {error}")

    return merge([cases()])


def _log_rows(all_lines: Sequence[bytes], path: str) -> Iterator[tuple[str, Row | InputError]]:
    if all_lines and all_lines[0].strip() in (b"{", b"["):
        try:
            whole = decode(join_lines(all_lines, path))
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        rows = {path: whole}
        if isinstance(whole, list):
            rows = {f"{path}[{place}]": row for place, row in enumerate(whole)}
        yield from ((where, row_or_error(row, where)) for where, row in rows.items())
        return
    yield from line_rows(all_lines, path)


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

    `requests` is the input file of a batch, `fields` the setting `map`; `bare` cases need no candidates.
    `say` is called with a line on how the fields of a file in no known format are read. Cases that state no
    domain get one by a decision about the whole file.
    """
    if format_ not in (AUTO, *format_names()):
        choices = [AUTO, *format_names()]
        raise SettingError(
            f"unknown format {format_!r}: {installs(format_) or nearest(format_, choices)}there are "
            f"{', '.join(choices)}"
        )
    reader = _Reader(parse_map(fields), bare=bare, say=say)
    if len(paths := split_paths(path)) > 1:
        return agree_on_domain(reader.several(paths))
    if not is_stream(path) and Path(path).is_dir():
        return agree_on_domain(reader.folder(path))
    return agree_on_domain(reader.read(path, format_, requests))


def cases_of_table(
    rows: Iterable[Row],
    fields: str | Mapping[str, str],
    *,
    group_by: str | None = None,
    say: Callable[[str], None] = lambda _: None,
    warn: Callable[[str], None] | None = None,
) -> Iterator[Case | InputError]:
    """Read the cases of the rows of a table, one row each, or one row for each candidate.

    Rows with the same value of `group_by` are candidates of one case. `fields` and `say` are as in
    `open_cases`; `warn` is called with the columns that are left out.
    """
    paths = parse_map(fields)
    reader = _Reader(paths if group_by is None else {**paths, "id": group_by}, bare=False, say=say, warn=warn)
    return reader.rows(enumerate(map(present, rows), start=1), "cases", grouped=group_by is not None)


class _Reader:
    """Reads files of any format, with the fields that the user named."""

    def __init__(
        self,
        stated: Mapping[str, str],
        *,
        bare: bool,
        say: Callable[[str], None],
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self._stated, self._bare, self._say, self._warn = stated, bare, say, warn or say

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
        paths = [str(file) for file in files]
        if all(file.endswith(LINES) for file in paths):
            yield from self._lines(chain.from_iterable(map(lines, paths)), path, AUTO, None)
            return
        if all(map(is_parquet, paths)):
            yield from self.rows(enumerate(chain.from_iterable(map(parquet_rows, paths)), start=1), path)
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
            yield from self.rows(enumerate(parquet_rows(path), start=1), path)
            return
        if format_ in (AUTO, "caps") and is_table(path):
            yield from self.rows(enumerate(table_rows(path), start=2), path, header=1)
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
        name = self._format_of(decode_row(first)) if format_ == AUTO else format_
        if name == "caps" and (row := self._unusual(first)) is not None:
            numbered = (
                (place, decode_row(line)) for place, line in enumerate(source, start=1) if line.strip()
            )
            yield from self.rows(numbered, path, row)
        elif name == "caps":
            yield from cases_in(source, path, bare=self._bare)
        elif requests is None:
            yield from format_named(name).read(source, path)
        elif name == "openai-batch":
            yield from read_batch(source, path, requests)
        else:
            raise SettingError(f"--requests applies to openai-batch only; the format of {path} is {name}")

    def _format_of(self, row: Row | InputError) -> str:
        """The format by the fields of the first row; what can be understood as a case is no log."""
        name = "caps" if isinstance(row, InputError) else _by_fields(row)
        if name in FORMATS or isinstance(row, InputError):
            return name
        try:
            understand(row, self._stated, bare=self._bare)
        except InputError:
            return name
        return "caps"

    def _unusual(self, first: bytes) -> Row | None:
        """The first row, unless it is a case under the names of caps, or cannot be understood otherwise."""
        row = decode_row(first)
        if isinstance(row, InputError):
            return None
        usual = "problem" in row and ("candidates" in row or self._bare)
        if usual and not self._stated and not has_labels_beside(row):
            return None
        try:
            understand(row, self._stated, bare=self._bare)
        except InputError:  # said of the file, unless it begins with a faulty case
            return row if self._stated or not {"problem", "candidates"} & row.keys() else None
        return row

    def rows(
        self,
        rows: Iterator[tuple[int, Row | InputError]],
        path: str,
        first: Row | None = None,
        *,
        header: int = 0,
        grouped: bool = False,
    ) -> Iterator[Case | InputError]:
        """Rows under any names, one per case or, always if they are `grouped`, one per candidate."""
        if first is None:
            head = next(rows, None)
            if head is None:
                raise InputError(f"{path}: has no rows")
            if isinstance(head[1], InputError):
                said = str(head[1])
                raise InputError(said if said.startswith(path) else f"{path}:{head[0]}: {said}")
            first, rows = head[1], chain([head], rows)
        if grouped and find(first, self._stated["id"]) is None:
            guess = nearest(self._stated["id"], list(first))
            raise InputError(
                f"group_by: there is no column {self._stated['id']!r}: {guess}{fields_of(first)}"
            )
        try:
            fields = understand(present(first), self._stated, bare=self._bare)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        if grouped and fields.candidate is None:
            raise InputError(
                f"{path}: {' and '.join(fields.candidates)} holds a list, and rows that are grouped hold one "
                "candidate each: leave out group_by, or name their field with --map candidate=FIELD"
            )
        self._say(f"{path}: {fields.describe()}")
        if fields.candidate is None:
            yield from cases_in_rows(rows, path, fields.case_row, bare=self._bare, header=header)
        else:
            joined = group_rows(rows, fields, lambda said: self._warn(f"{path}: {said}"))
            yield from cases_in_rows(joined, path, bare=self._bare)

    def _document(self, source: Iterator[bytes], path: str) -> Iterator[Case | InputError]:
        """One JSON value over several lines: a log of Inspect, results of LiveCodeBench, or rows."""
        whole = join_lines(source, path)
        try:
            value = decode(whole)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        rows = value if isinstance(value, list) else [value]
        name = self._format_of(rows[0]) if rows and isinstance(rows[0], dict) else "caps"
        if name != "caps":
            yield from format_named(name).read(whole.splitlines(keepends=True), path)
            return
        yield from self.rows(((place, row_or_error(row)) for place, row in enumerate(rows, start=1)), path)

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


def _by_fields(row: Row) -> str:
    """The first built-in format that the fields fit, else the plug-in's with the most of these fields."""
    for name, format_ in FORMATS.items():
        if any(fields <= row.keys() for fields in format_.known_by):
            return name
    fitting = {"caps": 0}
    for name in names(PLUGIN_FORMATS):
        try:
            sets = format_named(name).known_by
        except SettingError:  # a plug-in that cannot be loaded; `caps list plugins` says why
            continue
        fitting[name] = max((len(fields) for fields in sets if fields <= row.keys()), default=-1)
    return max(fitting, key=lambda name: fitting[name])


def count_cases(path: str, fields: str = "") -> int | None:
    """The number of cases of a file, if it is known without reading them."""
    if len(paths := split_paths(path)) > 1:
        counts = [count_cases(part, fields) for part in paths]
        return None if None in counts else sum(count or 0 for count in counts)
    if is_stream(path) or "://" in path or Path(path).is_dir() or is_zip(path) or is_table(path):
        return None
    if is_parquet(path):
        return count_rows(path)
    first, _ = peek_line(lines(path))
    row = decode_row(first)
    if isinstance(row, InputError) or _by_fields(row) != "caps":
        return None
    try:
        one_per_case = "candidates" in row or understand(row, parse_map(fields), bare=True).candidate is None
        return count_lines(path) if one_per_case else None
    except InputError:
        return None


def merge(sources: Iterable[Iterable[Case | InputError]]) -> Iterator[Case | InputError]:
    """Merge the candidates of several files by case id, in the order of the files."""
    merged: dict[str, Case] = {}
    for source in sources:
        for case in source:
            if isinstance(case, InputError):
                yield case
                continue
            earlier = merged.get(case.id)
            if earlier is not None and earlier.problem != case.problem:
                yield InputError(f"case {case.id!r}: has a different problem in an earlier file")
            elif earlier is not None:
                merged[case.id] = replace(earlier, candidates=earlier.candidates + case.candidates)
            else:
                merged[case.id] = case
    yield from merged.values()
