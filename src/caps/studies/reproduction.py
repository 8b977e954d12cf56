"""The paper's studies with your own models: their suites, and the candidates they need."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from msgspec.structs import replace as changed

from caps.core.errors import SettingError
from caps.core.settings import nearest
from caps.registry import PRESETS
from caps.studies.metrics import MethodResults, pass_at_1, token_share
from caps.studies.play import Step, Task, play_task
from caps.studies.results import slug
from caps.studies.study import Study, Suite, TableSpec, load_study, recipe
from caps.studies.tables import AVERAGE, Book

FOLDER = Path(__file__).parent / "paper"
#: Names of `--tables`: a study each, in the order of the page.
STUDIES = (
    "main", "difficulty", "random", "scaling", "ablation", "thinking", "disagreements", "delta", "topk",
    "representatives", "stage0", "budget",
)  # fmt: skip
ALL = "all"
REHEARSED = 8  # simulated problems of a suite whose calls are counted for a forecast


@dataclass(frozen=True, slots=True)
class Pool:
    """Candidates that studies need: `n` answers of a model to every problem of a benchmark, in a file."""

    model: str
    benchmark: str
    preset: str
    n: int
    path: Path


def load_paper(names: Sequence[str]) -> list[Study]:
    """The paper's studies of these names."""
    wanted = STUDIES if ALL in names else tuple(dict.fromkeys(names))
    for name in wanted:
        if name not in STUDIES:
            known = ", ".join([ALL, *STUDIES])
            raise SettingError(f"--tables {name!r}: {nearest(name, list(STUDIES))}there are {known}")
    return [load_study(FOLDER / f"{name}.toml") for name in wanted]


def preset_of(model: str) -> str:
    """The preset of the paper's model with this name at a server, such as Qwen/Qwen3-14B; else `default`."""
    name = slug(model.rpartition("/")[2])
    return next((preset for preset in PRESETS.table if name.startswith(preset)), "default")


def with_benchmarks(studies: Sequence[Study], names: Sequence[str]) -> list[Study]:
    """The studies on some benchmarks only; a study without any of them is left out."""
    known = {suite.benchmark for study in load_paper(["main"]) for suite in study.suites}
    for name in names:
        if name not in known:
            listed = ", ".join(sorted(known))
            raise SettingError(f"--benchmarks {name!r}: {nearest(name, sorted(known))}there are {listed}")
    fewer = []
    for study in studies:
        suites = tuple(suite for suite in study.suites if suite.benchmark in names)
        tables = [_table(table, study, suites, same=suites == study.suites) for table in study.tables]
        kept = tuple(table for table in tables if table is not None)
        if suites and kept:
            fewer.append(replace(study, suites=suites, tables=kept))
    if not fewer:
        raise SettingError(f"--benchmarks {','.join(names)}: none of them is in --tables")
    return fewer


def with_models(study: Study, models: Sequence[str], folder: Path, n: int | None = None) -> Study:
    """The study on suites of these models; `folder` holds their cases, and `n` replaces the paper's 16.

    A model of the paper has the paper's suites, settings and figures. Another one has the same benchmarks
    under its own name, without figures to compare.
    """
    shelf = {(suite.preset, suite.benchmark): suite for suite in load_study(FOLDER / "main.toml").suites}
    suites = [
        _suite(suite, model, shelf, folder, n) for model in models for suite in _suites_for(study, model)
    ]
    same = [suite.name for suite in suites] == [suite.name for suite in study.suites]
    tables = [_table(table, study, suites, same=same) for table in study.tables]
    return replace(study, suites=tuple(suites), tables=tuple(table for table in tables if table is not None))


def _suites_for(study: Study, model: str) -> list[Suite]:
    """The suites of the paper's model of that name; for another one, each benchmark and size once."""
    own = [suite for suite in study.suites if suite.preset == preset_of(model)]
    return own or list({(suite.benchmark, suite.n): suite for suite in reversed(study.suites)}.values())[::-1]


def _suite(
    suite: Suite, model: str, shelf: Mapping[tuple[str, str], Suite], folder: Path, n: int | None
) -> Suite:
    preset = preset_of(model)
    own = shelf.get((preset, suite.benchmark))
    title = model if own is None else own.name.partition(" ")[0]
    paper_title = shelf[suite.preset, suite.benchmark].name.partition(" ")[0]
    name = suite.name
    if preset != suite.preset:
        rest = name.removeprefix(f"{paper_title} ")
        name = f"{title} {rest}" if rest != name else f"{title}, {name}"
    return changed(
        suite,
        name=name,
        model=model,
        preset=preset,
        n=suite.n if n is None else min(n, suite.n or n),
        judge={} if own is None else own.judge,
        cases=folder / f"{slug(model)}.{suite.benchmark}.jsonl",
    )


def _table(table: TableSpec, study: Study, suites: Sequence[Suite], *, same: bool) -> TableSpec | None:
    """A table with the suites of other models; None if none of its benchmarks is left."""
    shown = {suite.benchmark for suite in study.suites if not table.suites or suite.name in table.suites}
    names = tuple(suite.name for suite in suites if suite.benchmark in shown)
    if not names:
        return None
    published = table.published
    if (
        not same
    ):  # a mean over all of the paper's suites, or a figure of its model, has no place beside others
        by_suite = table.down == "suites" or table.across == "suites"
        published = {row: cells for row, cells in published.items() if by_suite and row != AVERAGE}
    return changed(table, suites=names if table.suites else (), published=published)


def pools_of(studies: Sequence[Study]) -> list[Pool]:
    """The candidates that some studies need; of a model and benchmark, as many as the largest suite wants."""
    largest: dict[Path, Suite] = {}
    for suite in (suite for study in studies for suite in study.suites):
        if suite.cases is not None and (suite.n or 0) > (getattr(largest.get(suite.cases), "n", None) or 0):
            largest[suite.cases] = suite
    return [
        Pool(str(suite.model), suite.benchmark, suite.preset, suite.n or 0, path)
        for path, suite in largest.items()
    ]


def rehearsed_calls(study: Study, suite: Suite, problems: int) -> Iterator[tuple[float, float]]:
    """Calls and tokens that each method needs on a suite without candidates, from simulated ones."""
    made = recipe(suite.simulated, suite.n)
    pools = tuple(made.make(range(min(REHEARSED, made.count))))
    for method in study.methods:
        steps = tuple(Step(method.name, method.strategy, seed) for seed in study.seeds)
        _, results = play_task(Task(pools, steps, made.judge, made.seed))
        scale = problems / len(pools)
        yield (
            scale * sum(sum(result.calls) for result in results),
            scale * sum(sum(result.tokens) for result in results),
        )


# Where CAPS stands against V1-Infer: the sentence and the chart of the page


METHODS = ("Vanilla", "Pointwise", "V1-Infer", "CAPS")
OURS, OTHER = "CAPS", "V1-Infer"


class StandingPoint(NamedTuple):
    """A method: its mean Pass@1 over suites with an interval, and its tokens as a share of V1-Infer's."""

    method: str
    share: float
    low: float
    high: float
    tokens: float


@dataclass(frozen=True, slots=True)
class Standing:
    """On how many suites CAPS is ahead of V1-Infer, and for which share of its tokens; the paper's beside.

    The token share is the mean over suites of code, as in the paper, or over all if there is none of code.
    """

    ahead: int
    suites: int
    token_share: float | None
    code: bool
    paper_ahead: int
    paper_suites: int
    paper_token_share: float
    points: tuple[StandingPoint, ...]
    paper_points: tuple[StandingPoint, ...]

    @property
    def sentence(self) -> str:
        """What came out, in a sentence."""
        share = "unknown" if self.token_share is None else f"{100 * self.token_share:.1f} %"
        kind = " on code" if self.code else ""
        return (
            f"CAPS is ahead of V1-Infer on {self.ahead} of {self.suites} suites "
            f"(paper: {self.paper_ahead} of {self.paper_suites}) "
            f"and reads {share} of its tokens{kind} (paper: {self.paper_token_share} %)."
        )


def standing_of(study: Study, book: Book) -> Standing:
    """How CAPS and V1-Infer stand in the main study; suites without results of both are left out."""
    sheets = {
        suite: {
            method: MethodResults(played[method], reference=played[OTHER])
            for method in METHODS
            if method in played
        }
        for suite, played in book.items()
        if OURS in played and OTHER in played
    }
    code = {suite.name for suite in study.suites if str(suite.profile).startswith("code")} & sheets.keys()
    shares = [figure.value for suite in code or sheets if (figure := token_share(sheets[suite][OURS]))]
    points = [
        _point(method, [own[method] for own in sheets.values() if method in own])
        for method in METHODS
        if any(method in own for own in sheets.values())
    ]
    return Standing(
        ahead=sum(
            fmean(own[OURS].rates.values()) > fmean(own[OTHER].rates.values()) for own in sheets.values()
        ),
        suites=len(sheets),
        token_share=fmean(shares) if shares else None,
        code=bool(code),
        **_published_standing(),
        points=tuple(points),
        paper_points=tuple(_paper_points()),
    )


def _point(method: str, sheets: Sequence[MethodResults]) -> StandingPoint:
    """The means of a method over suites."""
    rates = [figure for sheet in sheets if (figure := pass_at_1(sheet))]
    shares = [figure.value for sheet in sheets if (figure := token_share(sheet))]
    mean = fmean(figure.value for figure in rates)
    half = hypot(*(((figure.high or 0) - (figure.low or 0)) / 2 for figure in rates)) / len(rates)
    tokens = fmean(shares) if shares else 0.0
    return StandingPoint(method, mean, max(0.0, mean - half), min(1.0, mean + half), tokens)


def _published(name: str) -> Mapping[str, Mapping[str, float]]:
    (study,) = load_paper(["main"])
    (table,) = (table for table in study.tables if table.name == name)
    return table.published


def _published_standing() -> dict[str, Any]:
    rows = [row for name, row in _published("main").items() if name != AVERAGE]
    return {
        "paper_ahead": sum(row[OURS] > row[OTHER] for row in rows),
        "paper_suites": len(rows),
        "paper_token_share": _published("tokens")[AVERAGE]["T%"],
    }


def _paper_points() -> Iterator[StandingPoint]:
    """The paper's means; it states no tokens of Pointwise, and those of CAPS for code and math apart."""
    code, math = (_published(name)[AVERAGE]["T%"] / 100 for name in ("tokens", "tokens-math"))
    tokens = {"Vanilla": 0.0, OTHER: 1.0, OURS: (12 * code + 8 * math) / 20}
    for method, share in tokens.items():
        mean = _published("main")[AVERAGE][method] / 100
        yield StandingPoint(method, mean, mean, mean, share)
