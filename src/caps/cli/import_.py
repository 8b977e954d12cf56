"""`caps import`: convert other tools' logs, and published problems, to cases."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer
from platformdirs import user_cache_path

from caps.cli.options import Fields, allow_named, completion, named_domain
from caps.cli.output import FailureLog, say
from caps.core.errors import InputError, SettingError
from caps.core.text import plural
from caps.core.types import Case
from caps.datasets.case_files import write_case
from caps.datasets.imports import AUTO, format_names, merge, open_cases
from caps.datasets.published import Dataset, Window
from caps.datasets.verdicts import RecordCollector, read_recorded, write_recorded
from caps.files import Output as OutputFile
from caps.registry import DATASETS, DOMAINS, resolve

Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE...", help="Logs with candidates, or the files of --dataset; - reads standard input."
    ),
]
FormatName = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="NAME",
        help=f"Format of the logs: auto, {', '.join(format_names())}.",
        autocompletion=completion((AUTO, *format_names())),
    ),
]
Requests = Annotated[
    str | None,
    typer.Option("--requests", metavar="FILE", help="Input file of a batch, which holds the problems."),
]
DatasetName = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        metavar="NAME",
        help="Published problems; see caps list datasets.",
        autocompletion=completion(DATASETS.table),
    ),
]
Fetch = Annotated[
    bool, typer.Option("--fetch", help="Download the files of --dataset first, unless they are there.")
]
Cache = Annotated[
    Path | None,
    typer.Option("--cache", envvar="CAPS_CACHE", metavar="DIR", help="Folder for downloads."),
]
Mirror = Annotated[
    str | None,
    typer.Option("--mirror", envvar="CAPS_MIRROR", metavar="URL", help="Download from this address instead."),
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="DATE", help="Only problems of this day (YYYY-MM-DD) or later."),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="DATE", help="Only problems before this day (YYYY-MM-DD).")
]
AnyCount = Annotated[bool, typer.Option("--any-count", help="Accept a data set with missing problems.")]
Domain = Annotated[
    str | None,
    typer.Option(
        "--domain",
        metavar="NAME",
        help="Domain of the cases; see caps list domains. Default: guessed.",
        autocompletion=completion(DOMAINS.table),
    ),
]
Verdicts = Annotated[
    Path | None,
    typer.Option(
        "--verdicts", metavar="OUT", help="Write the recorded verdicts in the files there, and no cases."
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="File to write. Default: standard output."),
]


def import_(
    files: Files = None,
    format_: FormatName = AUTO,
    requests: Requests = None,
    fields: Fields = "",
    dataset: DatasetName = None,
    fetch: Fetch = False,
    cache: Cache = None,
    mirror: Mirror = None,
    since: Since = None,
    until: Until = None,
    any_count: AnyCount = False,
    domain: Domain = None,
    verdicts: Verdicts = None,
    output: Output = None,
) -> None:
    """Convert other tools' logs, or published problems, to cases.

    Cases are written one JSON object per line. Logs with the same problems are merged: the candidates of each
    file follow one another. Recorded verdicts (--verdicts) are checked, merged, and written one answer per
    line.
    """
    allow_named(dataset)
    domain = named_domain(domain)
    if verdicts is not None:
        raise typer.Exit(1 if _import_verdicts(files or [], verdicts) else 0)
    if dataset is None:
        for value, name in ((fetch, "--fetch"), (since, "--since"), (until, "--until"), (mirror, "--mirror")):
            if value:
                raise SettingError(f"{name} needs --dataset NAME")
        source = _logs(files or [], format_, requests, fields)
    else:
        published = _dataset(dataset)
        folders = [fetched(published, cache, mirror)] if fetch else files or []
        if len(folders) != 1:
            raise SettingError(f"--dataset {dataset}: give one file or folder of it, or --fetch")
        window = _window(published, since, until)
        source = published.read(folders[0], window=window, any_count=any_count)
    counts = _Counts()
    with OutputFile(
        output or "-", option="--output", inputs=[*(files or []), *([requests] if requests else [])]
    ) as sink:
        for line in counts.lines(source, domain):
            sink.write(line)
        sink.finish()
    kind = "problem" if dataset else "case"
    where = "" if output is None else f", written to {output}"
    say(f"{plural(counts.good, kind)}, {plural(counts.candidates, 'candidate')}{where}")
    raise typer.Exit(1 if counts.bad else 0)


class _Counts:
    """Counts the cases and reports the lines that are wrong."""

    def __init__(self) -> None:
        self.good = self.bad = self.candidates = 0

    def lines(self, source: Iterator[Case | InputError], domain: str | None) -> Iterator[bytes]:
        """The lines of the good cases."""
        with FailureLog() as failures:
            for case in source:
                if isinstance(case, InputError):
                    self.bad += 1
                    failures.add(str(case))
                    continue
                self.good += 1
                self.candidates += len(case.candidates)
                if domain is not None:
                    case = replace(case, domain=domain, guessed=False)  # noqa: PLW2901
                yield write_case(case) + b"\n"


def _logs(files: list[str], format_: str, requests: str | None, fields: str) -> Iterator[Case | InputError]:
    if not files:
        raise SettingError("nothing to import: name a file, or a --dataset")
    sources = [open_cases(path, format_, requests=requests, fields=fields, say=say) for path in files]
    return sources[0] if len(sources) == 1 else merge(sources)


def _import_verdicts(files: list[str], output: Path) -> int:
    """Write the recorded answers of all files, each once; how many lines could not be read."""
    if not files:
        raise SettingError("--verdicts: name a file of recorded verdicts")
    book, failed = RecordCollector(), 0
    with OutputFile(output, option="--verdicts", inputs=files) as sink:
        for path in files:
            for where, record in read_recorded(path):
                if isinstance(record, InputError):
                    failed += 1
                    say(f"failed: {record}", "red")
                elif book.add(record, where):
                    sink.write(write_recorded(record))
        sink.finish()
    say(f"{book.count} answers of {', '.join(book.judges) or 'no judge'}, written to {output}")
    return failed


def _dataset(name: str) -> Any:
    dataset = resolve(DATASETS, name)
    if not isinstance(dataset, Dataset):
        raise SettingError(f"{name!r} is {dataset!r:.80}: not a data set, which is a caps.Dataset")
    return dataset


def fetched(dataset: Any, cache: Path | None = None, mirror: str | None = None) -> str:
    """Download a data set, unless it is there; its file or folder."""
    from caps.datasets.published import fetch  # noqa: PLC0415  (urllib takes a while to load)

    if not dataset.urls:
        raise SettingError(f"--fetch: no address is known for {dataset.name}: give the path of its files")
    folder = (cache or user_cache_path("caps") / "datasets") / dataset.name
    say(f"downloading {dataset.name} ({dataset.licence}) to {folder}")
    paths = fetch(dataset.urls, folder, mirror=mirror)
    return str(folder if len(paths) > 1 else paths[0])


def _window(dataset: Any, since: str | None, until: str | None) -> Window | None:
    if since is None and until is None:
        return None
    if dataset.dated is None:
        raise SettingError(f"--since and --until: problems of {dataset.name} have no dates")
    default = dataset.window
    return Window(_day(since, "--since") or default.since, _day(until, "--until") or default.until)


def _day(word: str | None, option: str) -> date | None:
    try:
        return None if word is None else date.fromisoformat(word)
    except ValueError:
        raise SettingError(f"{option} {word!r}: write a day as 2024-08-01") from None
