"""`caps reproduce`: the paper's tables with your own models, in one command."""

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer

from caps.cli import options
from caps.cli.bench import (
    PAGE,
    FinishedStudy,
    PreparedStudy,
    Resolving,
    prepare_study,
    print_table,
    run_study,
    say_forecast,
    study_row,
)
from caps.cli.grade import GradeRun
from caps.cli.help import BUDGET, FILES, GENERATION, PERFORMANCE, STRATEGY
from caps.cli.import_ import AnyCount, fetched
from caps.cli.options import JsonFlag, configured, stated_settings
from caps.cli.output import print_json, say
from caps.cli.preflight import resolved_for
from caps.cli.sample import TEST_SECONDS, SampleRun
from caps.config import Keys, RunConfig, identity
from caps.core.errors import InputError, SettingError
from caps.core.text import estimate_tokens, plural
from caps.core.types import Case
from caps.datasets.case_files import write_case
from caps.datasets.imports import open_cases
from caps.datasets.published import SUFFIXES, Dataset
from caps.datasets.reading import read_rows
from caps.datasets.verdicts import RecordCollector, write_recorded
from caps.files import Output, file_errors, write_file
from caps.registry import DATASETS
from caps.registry import resolve as resolve_name
from caps.reports.page import write_page
from caps.reports.paper_page import paper_page
from caps.reports.study import Chapter
from caps.runs.run_file import digests, versions
from caps.session.parts import make_graders
from caps.session.resolve import Resolved, generation_of
from caps.studies.bench import Bench
from caps.studies.reproduction import (
    Pool,
    Standing,
    load_paper,
    pools_of,
    rehearsed_calls,
    standing_of,
    with_benchmarks,
    with_models,
)
from caps.studies.results import claim_folder, digest, slug, study_started
from caps.studies.study import Study
from caps.studies.study_forecast import StudyForecast, add_calls, add_price, forecast_study
from caps.studies.suites import suite_cases

NAME = "paper"
RESULTS = "results.json"
ASSUMED_ANSWER = 0.25  # of the room of a sample that it fills, where nothing is known
PROMPT_TOKENS = 150  # of a generation prompt besides the problem

Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model", envvar="CAPS_MODEL", show_envvar=False, metavar="NAME", rich_help_panel=GENERATION,
        help="Model that writes and judges the answers; repeat it for several.",
    ),
]  # fmt: skip
Tables = Annotated[
    str,
    typer.Option(
        "--tables", metavar="NAMES", rich_help_panel=STRATEGY,
        help="Studies of the paper, separated by commas: main, ablation, … or all.",
    ),
]  # fmt: skip
Benchmarks = Annotated[
    str | None,
    typer.Option(
        "--benchmarks", metavar="NAMES", rich_help_panel=STRATEGY,
        help="Only these data sets, separated by commas: aime-2025, codecontests, … Default: all five.",
    ),
]  # fmt: skip
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", rich_help_panel=FILES,
        help="Folder with the data sets (DIR/aime-2025.jsonl, …). Default: they are downloaded.",
    ),
]  # fmt: skip
OutFolder = Annotated[
    Path,
    typer.Option(
        "--out", envvar="CAPS_OUT", show_envvar=False, metavar="DIR", rich_help_panel=FILES,
        help="Folder for candidates, results and the page.",
    ),
]  # fmt: skip
Simulated = Annotated[
    bool,
    typer.Option(
        "--simulate", rich_help_panel=STRATEGY,
        help="Simulate the paper's candidates and judges; ask no model.",
    ),
]  # fmt: skip
Speed = Annotated[
    float,
    typer.Option(
        "--speed", min=1.0, metavar="TOKENS", rich_help_panel=PERFORMANCE,
        help="Tokens that the server writes per second in all, for the forecast of hours.",
    ),
]  # fmt: skip
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Start without asking.", rich_help_panel=BUDGET)]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the forecast and stop.", rich_help_panel=FILES)
]


@configured(
    "judge", "asking", "generation", "performance", "context", "embedded", "journal", "price",
    without=("model", "timeout", "generator", "max_n", "method"),
)  # fmt: skip
def reproduce(
    ctx: typer.Context,
    config: RunConfig,
    keys: Keys,
    models: Models = None,
    tables: Tables = "main",
    benchmarks: Benchmarks = None,
    data: Data = None,
    out: OutFolder = Path(NAME),
    simulate: Simulated = False,
    limit: options.Limit = None,
    any_count: AnyCount = False,
    speed: Speed = 1000.0,
    processes: options.Processes = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Measure the paper's tables with your own models.

    Samples 16 answers to every problem of LiveCodeBench v5 and v6, CodeContests, AIME 2025 and HMMT 2025,
    grades them, has the same model judge them, and writes one page, results.json and all verdicts. Calls,
    tokens, cost and hours are forecast first. Stop it at any time: the same command continues, and nothing is
    paid for twice.
    """
    studies = load_paper(_names(tables))
    if benchmarks is not None:
        studies = with_benchmarks(studies, _names(benchmarks))
    if simulate:
        folder = out if out != Path(NAME) else Path(f"{NAME}-simulated")
        run = _Run(studies, folder, limit, processes, quiet)
        with claim_folder(folder, NAME, simulated=True, force=force, started=time.time()):
            raise typer.Exit(run.finish(run.play(None), None, as_json=as_json))
    if not models:
        raise SettingError("--model: name the model that answers and judges, or add --simulate")
    stated = stated_settings(ctx)
    n = config.samples if "samples" in stated and isinstance(config.samples, int) else None
    studies = [with_models(study, models, out / "cases", n) for study in studies]
    started = study_started(out, force=force) or time.time()
    resolving = Resolving(config, keys, stated - {"samples", "preset"}, quiet=quiet, started=started)
    problems = Problems(data, limit, any_count=any_count)
    pools = pools_of(studies)
    problems.check({pool.benchmark for pool in pools})
    candidates = Candidates(config, keys, stated, problems, quiet=quiet)
    run = _Run(studies, out, limit, processes, quiet)
    spent = _forecast(run, candidates, pools, resolving)
    say_forecast(spent, speed)
    if dry_run:
        return
    if spent.calls and not yes and not _agreed():
        raise typer.Exit(1)
    with claim_folder(out, NAME, simulated=False, force=force, started=started):
        incomplete = False
        for place, pool in enumerate(pools, start=1):
            incomplete |= candidates.make(pool, f"[{place} of {len(pools)}] {pool.model}, {pool.benchmark}")
        done = run.play(resolving)
        code = run.finish(done, resolving, as_json=as_json)
    raise typer.Exit(code or (1 if incomplete else 0))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _agreed() -> bool:
    """Ask whether to start; without a terminal, --yes says so."""
    if not sys.stdin.isatty():
        raise SettingError("this would ask models: add --yes to start, or --dry-run to see the forecast only")
    return typer.confirm("Start?", err=True)


class Problems:
    """The data sets: files of a folder, or downloads."""

    def __init__(self, folder: Path | None, limit: int | None, *, any_count: bool) -> None:
        self._folder, self._limit, self._any_count = folder, limit, any_count
        self._paths: dict[str, str] = {}

    def check(self, names: set[str]) -> None:
        """Find all data sets; those that are missing are named with the command that brings them."""
        missing = []
        for name in sorted(names):
            if self._folder is None:
                self._paths[name] = fetched(_dataset(name))
                continue
            places = [self._folder / name, *(self._folder / f"{name}{suffix}" for suffix in SUFFIXES)]
            path = next((place for place in places if place.exists()), None)
            if path is None:
                missing.append(f"caps import --dataset {name} --fetch -o {self._folder / name}.jsonl")
            else:
                self._paths[name] = str(path)
        if missing:
            raise InputError(
                f"--data {self._folder}: {plural(len(missing), 'data set')} missing; on a machine with a "
                f"network, run: {'; '.join(missing)}"
            )

    def read(self, name: str) -> Iterator[Case]:
        """The problems of a data set, as published or as `caps import` wrote them."""
        path, dataset = self._paths[name], _dataset(name)
        if _is_imported(path):
            cases = self._counted(open_cases(path, bare=True), dataset, path)
        else:
            cases = dataset.read(path, any_count=self._any_count)
        for case in islice(cases, self._limit):
            if isinstance(case, InputError):
                raise case
            yield case

    def _counted(
        self, cases: Iterator[Case | InputError], dataset: Dataset, path: str
    ) -> Iterator[Case | InputError]:
        count = 0
        for case in cases:
            count += 1
            yield case
        if count != dataset.expected and not self._any_count:
            raise InputError(
                f"{path}: {count} problems, but {dataset.name} has {dataset.expected}; --any-count accepts it"
            )

    def count(self, name: str) -> int:
        """How many problems are taken of a data set, as far as is known without reading it."""
        return min(_dataset(name).expected, self._limit or sys.maxsize)

    def version(self, name: str) -> list[Any]:
        """What the problems depend on."""
        files = [Path(self._paths[name])]
        files = sorted(files[0].iterdir()) if files[0].is_dir() else files
        return [self._limit, *((file.name, file.stat().st_size) for file in files)]


def _dataset(name: str) -> Dataset:
    dataset: Dataset = resolve_name(DATASETS, name)
    return dataset


def _is_imported(path: str) -> bool:
    """Whether a file holds cases instead of the rows of a data set."""
    if Path(path).is_dir():
        return False
    row = next((row for _, row in read_rows(path)), None)
    return isinstance(row, dict) and {"id", "domain", "problem"} <= row.keys()


class Candidates:
    """Samples and grades the candidates of pools; a pool that is complete is not touched again."""

    def __init__(
        self, config: RunConfig, keys: Keys, stated: frozenset[str], problems: Problems, *, quiet: bool
    ) -> None:
        self._config, self._keys, self._stated, self._quiet = config, keys, stated, quiet
        self.problems = problems

    def resolved(self, pool: Pool) -> Resolved:
        """The config of the samples of a pool."""
        preset = self._config.preset if "preset" in self._stated else pool.preset
        config = replace(self._config, model=pool.model, preset=preset, samples=pool.n, strategy="vanilla")
        with resolved_for(config, self._keys, generating=True, quiet=self._quiet) as resolved:
            return resolved

    def is_complete(self, pool: Pool, resolved: Resolved) -> bool:
        """Whether the file of a pool holds what its settings ask for."""
        stamp = pool.path.with_suffix(".made")
        return pool.path.is_file() and stamp.is_file() and stamp.read_text() == self._version(pool, resolved)

    def make(self, pool: Pool, title: str) -> bool:
        """Sample and grade a pool, unless that is done; whether something failed. `title` is for progress."""
        resolved = self.resolved(pool)
        if self.is_complete(pool, resolved):
            return False
        problems = list(self.problems.read(pool.benchmark))
        sampled = pool.path.with_suffix(".sampled.jsonl")
        with file_errors(str(pool.path)):
            pool.path.parent.mkdir(parents=True, exist_ok=True)
        with Output(sampled, keep=True) as sink:
            what = f"{title}: sample"
            sampling = SampleRun(resolved, out=sink, quiet=self._quiet, as_json=False, what=what)
            code = sampling.play(map(resolved.cases.apply, problems), len(problems))
        if code == 130:
            raise typer.Exit(code)
        grading = GradeRun(quiet=self._quiet, what=f"{title}: grade")
        graders = make_graders(self._config.sandbox, TEST_SECONDS)
        with Output(pool.path) as sink:
            source = open_cases(str(sampled))
            failed = code | asyncio.run(grading.play(source, len(problems), sink, graders, resolved.journal))
        if not failed:
            write_file(pool.path.with_suffix(".made"), self._version(pool, resolved).encode())
        return bool(failed)

    def _version(self, pool: Pool, resolved: Resolved) -> str:
        settings = identity(resolved.config, without=("strategy", "judge"))
        return digest(
            settings, generation_of(resolved).sources[0].preset, self.problems.version(pool.benchmark)
        )


class _Run(NamedTuple):
    """The studies of a run, and where their results go."""

    studies: Sequence[Study]
    folder: Path
    limit: int | None
    processes: int | None
    quiet: bool

    def prepare(self, study: Study, resolving: Resolving | None) -> PreparedStudy:
        """Find out what a study has to play."""
        return prepare_study(study, resolving, self.folder / study.name, limit=self.limit, quiet=self.quiet)

    def play(self, resolving: Resolving | None) -> list[FinishedStudy]:
        """Play every study."""
        done = []
        for place, study in enumerate(self.studies, start=1):
            what = f"[{place} of {len(self.studies)}] {study.name}"
            prepared = self.prepare(study, resolving)
            prepared.folder.mkdir(parents=True, exist_ok=True)
            done.append(run_study(prepared, self.limit, self.processes, quiet=self.quiet, what=what))
        return done

    def finish(self, done: Sequence[FinishedStudy], resolving: Resolving | None, *, as_json: bool) -> int:
        """Write the page, the results and the verdicts; the exit code."""
        standing = next(
            (standing_of(study.plan, study.book) for study in done if study.plan.name == "main"), None
        )
        row = _results_row(done, standing, self.limit)
        if resolving is not None:
            row["suites"] = _suites_row(self.studies, resolving)
            row["verdicts"] = _write_verdicts(self.folder / "verdicts", done)
        write_file(self.folder / RESULTS, msgspec.json.format(msgspec.json.encode(row)))
        chapters = [
            Chapter(plan.title, plan.about, f"caps reproduce --tables {plan.name}", tables, label)
            for plan, _, tables, label, _ in done
        ]
        page = paper_page(standing, chapters, simulated=row["simulated"], limit=self.limit)
        write_page(page, (), self.folder / PAGE)
        if as_json:
            print_json(row)
        else:
            for table in done[0].tables[:1]:
                print_table(table, done[0].label)
        if not self.quiet:
            say(f"page: {self.folder / PAGE}")
            say(f"results: {self.folder / RESULTS}")
        return 1 if any(study.failures for study in done) else 0


def _results_row(
    done: Sequence[FinishedStudy], standing: Standing | None, limit: int | None
) -> dict[str, Any]:
    played = [some for study in done for by_method in study.book.values() for some in by_method.values()]
    results = list(chain.from_iterable(played))
    return {
        "versions": versions(),
        "simulated": next((study.label for study in done if study.label), None),
        "limit": limit,
        "standing": None if standing is None else {**asdict(standing), "sentence": standing.sentence},
        "counts": {
            "selections": len(results),
            "failed": sum(len(study.failures) for study in done),
            "calls": sum(sum(result.calls) for result in results),
            "tokens": sum(sum(result.tokens) for result in results),
            "malformed": sum(result.malformed for result in results),
        },
        "studies": [{"name": study.plan.name, **study_row(study)} for study in done],
    }


def _suites_row(studies: Sequence[Study], resolving: Resolving) -> dict[str, Any]:
    """The settings and prompts of the judge of every suite."""
    rows = {}
    for study in studies:
        for suite in study.suites:
            if suite.name not in rows:
                resolved = resolving.of_suite(study, suite, study.methods[-1])
                rows[suite.name] = {
                    "model": suite.model,
                    "benchmark": suite.benchmark,
                    "n": suite.n,
                    "settings": identity(resolved.config, without=("strategy",)),
                    "prompts": digests(resolved.templates),
                }
    return rows


def _write_verdicts(folder: Path, done: Sequence[FinishedStudy]) -> dict[str, int]:
    """What the judges answered, a file for each suite with its cases; only with the views of the suite."""
    counts: dict[str, int] = {}
    with file_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    for study in done:
        own_views = {method.name for method in study.plan.methods if method.views}
        for suite in study.plan.suites:
            if suite.name in counts or suite.name not in study.book:
                continue
            collector, lines = RecordCollector(), list[bytes]()
            cases = {case.id: case for case in suite_cases(suite, None)}
            played = study.book[suite.name]
            for result in chain.from_iterable(some for name, some in played.items() if name not in own_views):
                for asked in result.asked:
                    record = asked.recorded(cases[result.case], str(suite.model))
                    if collector.add(record, result.case):
                        lines.append(write_recorded(record))
            with Output(folder / f"{slug(suite.name)}.verdicts.jsonl.gz") as sink:
                sink.write(b"".join(lines))
                sink.finish()
            with Output(folder / f"{slug(suite.name)}.cases.jsonl.gz") as sink:
                sink.write(b"".join(write_case(case) + b"\n" for case in cases.values()))
                sink.finish()
            counts[suite.name] = collector.count
    return counts


def _forecast(
    run: _Run, candidates: Candidates, pools: Sequence[Pool], resolving: Resolving
) -> StudyForecast:
    """What sampling and judging will take: judging is rehearsed where candidates are missing."""
    total = StudyForecast()
    ready = set[Path]()
    for pool in pools:
        resolved = candidates.resolved(pool)
        if candidates.is_complete(pool, resolved):
            ready.add(pool.path)
            continue
        problems = list(candidates.problems.read(pool.benchmark))
        source = generation_of(resolved).sources[0]
        calls = len(problems) * pool.n
        read = pool.n * sum(PROMPT_TOKENS + estimate_tokens(case.problem.text) for case in problems)
        written = calls * ASSUMED_ANSWER * source.preset.max_tokens
        total.calls += calls
        total.read += read
        total.written += written
        add_price(total, source.price, pool.model, read, written)
        total.assumed = True
    for study in run.studies:
        there = replace(study, suites=tuple(suite for suite in study.suites if suite.cases in ready))
        if there.suites:
            prepared = run.prepare(there, resolving)
            with Bench(prepared.shards, prepared.folder) as bench:
                forecast_study([bench], limit=run.limit, total=total)
        for suite in study.suites:
            if suite.cases not in ready:
                resolved = resolving.of_suite(study, suite, study.methods[-1])
                count = candidates.problems.count(suite.benchmark)
                for asked, tokens in rehearsed_calls(study, suite, count):
                    add_calls(total, resolved, asked, tokens)
    return total
