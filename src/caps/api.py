"""The Python API: choose the best candidate of one case, of many, or of a stream of them.

A plain name is async; the same name with `_sync` is not, and works inside a notebook's running loop too.

    best = caps.best_sync("What is 17 * 23?", ["391", "401"], model="qwen3-14b", base_url=URL)
    results = caps.select_many_sync(cases, model="qwen3-14b", base_url=URL, progress=True)
    async for result in caps.stream(cases, judge=my_function): ...

Keywords have the names and meanings of the settings in `RunConfig`. Their defaults come from the environment
variables of the command line (`CAPS_MODEL`, `CAPS_BASE_URL`, `CAPS_API_KEY`, ...). All cases of a call share
connections, journal and budgets. There is no journal unless one is named. Use `Runner` for other engines than
the local one.

Guessed domains (level INFO) and warnings about cases go to the logger `caps`.
"""

import asyncio
import gc
import inspect
import logging
import re
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack, get_type_hints

from caps.config import Keys, RunConfig, find_option, options
from caps.config_sources import read_environment, refuse_misspelt_variables
from caps.core.errors import CapsError, InputError, UnreadableJudgeError
from caps.core.play import Strategy
from caps.core.settings import nearest
from caps.core.types import DEFAULT_ID, Candidate, Case, Problem
from caps.datasets.case_files import parse_row
from caps.datasets.fields import standard_row
from caps.engines.base import Outcome
from caps.evidence.anatomy import final_answer
from caps.evidence.domains import agree_on_domain, domain_named, guess_domain
from caps.judging.base import Judge
from caps.judging.callables import JudgeFunction
from caps.models.base import Model, model_name
from caps.runner import Runner
from caps.sampling.base import Method, Sampled
from caps.sampling.presets import Preset
from caps.selected import (
    Comparison,
    Interval,
    LoadedRun,
    Selected,
    compare_results,
    failed,
    load_run,
    rows,
    selected_of,
)
from caps.solving import question_case, solve_case

__all__ = [
    "BestOptions", "Comparison", "Interval", "LoadedRun", "ManyOptions", "SelectOptions", "Selected",
    "SolveOptions", "Solved", "best", "best_sync", "compare_results", "load_run", "rows", "select",
    "select_many", "select_many_sync", "select_sync", "solve", "solve_sync", "stream",
]  # fmt: skip

_log = logging.getLogger("caps")

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Addresses = str | Sequence[str]
CaseLike = Case | Mapping[str, Any]
JudgeLike = Judge | JudgeFunction | str | Mapping[str, Any]


class ModelOptions(TypedDict, total=False):
    """Keywords of every function: the model and its key, the strategy, the journal, prices and limits."""

    model: str | Model | None
    base_url: Addresses
    api_key: str | None
    api_key_env: str
    judge_model: str | None
    judge_base_url: Addresses | None
    judge_api_key: str | None
    judge_api_key_env: str
    judge: Judge | JudgeFunction | str | Sequence[JudgeLike] | None
    reward_api: str | None
    reward_template: str | Path | None
    reward_steps: Literal["last", "min", "mean"]
    reward_class: int
    recorded: str | Path | None
    recorded_judge: str | None
    confidence: Literal["verbal", "logprobs", "auto"]
    max_tokens: int | None
    judge_temperature: float | None
    reply: Literal["auto", "free", "tags", "json", "choice", "guided-choice", "regex"] | None
    extra: Mapping[str, object] | None
    keep_going: bool
    criteria: str | None
    vision: Literal["auto", "yes", "no"]
    prompts: str | Path | None
    tokenizer: str | Path | None
    strategy: Strategy | str
    settings: Mapping[str, object] | None
    skip_failing: bool
    explain: bool
    judge_profile: str | Path | None
    seed: int
    profile: str | None
    views: Mapping[str, str] | None
    hard_evidence: Literal["auto", "on", "off"]
    write_tests: int
    write_tests_model: str | None
    sandbox: Literal["auto", "bwrap", "unsafe-local", "off"]
    further_inputs: int
    further_seconds: float
    repositories: str | None
    connections: int | Literal["auto"]
    max_connections: int | Literal["auto"]
    warm_prefix: Literal["auto", "on", "off"]
    cache_hints: Literal["auto", "on", "off"]
    timeout: float
    otel: bool
    context_tokens: int | None
    threads: int | None
    journal: str | Path | None
    durable: bool
    price_input: float | None
    price_output: float | None
    price_cached: float | None
    budget_tokens: int | None
    budget_usd: float | None
    budget_seconds: float | None


class SelectOptions(ModelOptions, total=False):
    """Keywords of `select`."""


class BestOptions(ModelOptions, total=False):
    """Keywords of `best`."""

    domain: str | None


class ManyOptions(ModelOptions, total=False):
    """Keywords of `select_many` and `stream`: those of `select`, a progress bar, budgets of the whole run."""

    progress: bool
    budget_total_tokens: int | None
    budget_total_usd: float | None
    budget_total_seconds: float | None


class SolveOptions(ModelOptions, total=False):
    """Keywords of `solve`: those of `select`, and how answers are generated."""

    n: int | Literal["auto"]
    max_n: int
    target: float
    generator: Sequence[str | Mapping[str, object]]
    domain: str | None
    preset: Preset | str
    method: Method | str
    logprobs: bool


@dataclass(frozen=True, slots=True)
class Solved:
    """The answer to a question: the text and final answer of the winner, its case, and the costs."""

    text: str
    answer: str | None
    case: Case
    sampled: Sampled
    selected: Selected


def _with_explicit_signature(function: F) -> F:
    """Show every keyword in `help()` and `inspect.signature`, with its type and default."""
    signature = inspect.signature(function)
    parameters = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    (packed,) = (one for one in signature.parameters.values() if one.kind is one.VAR_KEYWORD)
    keywords = packed.annotation.__args__[0]
    defaults = {name: one.default for name, one in options().items()}
    defaults |= {"n": defaults["samples"], "connections": defaults["max_connections"], "progress": False}
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=kind)
        for name, kind in get_type_hints(keywords).items()
    ]
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function


@_with_explicit_signature
async def select(case: CaseLike, **keywords: Unpack[SelectOptions]) -> Selected:
    """Choose the best candidate of a case; with a journal nothing is paid for twice.

    The case may also be a mapping with the fields of a line of `cases.jsonl`. Several base URLs are servers
    of the same model. `model="embedded"` needs no endpoint, nor does the path of a GGUF file, nor an object
    with the methods of `Model`, whose attribute `name` is its name in the journal. `judge` is a function
    `(problem, a, b) -> "A" | "B" | "TIE"`, sync or async, an object with the methods of `Judge`, or the name
    of a plug-in: then no model is needed, and `timeout` limits each of its calls. A list of them, and of
    tables such as `{"model": "qwen3-14b", "weight": 2}`, is a judge made of these judges. `settings` changes
    fields of the strategy.

    Raises `SettingError` or `InputError` for what was given, `ModelError` when the endpoint cannot be used,
    `UnreadableJudgeError` when most replies of the judge cannot be read (unless `keep_going` is true), and
    `CapsError` when nothing could be judged.
    """
    return await _select_one(_case_of(case), _runner(keywords, SelectOptions))


@_with_explicit_signature
def select_sync(case: CaseLike, **keywords: Unpack[SelectOptions]) -> Selected:
    """`select` for code that is not async; works inside a notebook's running loop too."""
    return _run_sync(lambda: select(case, **keywords))


@_with_explicit_signature
async def best(
    problem: str, candidates: Sequence[str | Candidate], **keywords: Unpack[BestOptions]
) -> Selected:
    """Choose the best of several answers to a problem; keywords and errors are those of `select`.

    `domain` is `code`, `math`, `general`, one of an installed package, or one given to `register_domain`; it
    is guessed from the answers if it is not given.
    """
    runner = _runner(keywords, BestOptions)
    return await _select_one(_case_of_texts(problem, candidates, runner.config.domain), runner)


@_with_explicit_signature
def best_sync(
    problem: str, candidates: Sequence[str | Candidate], **keywords: Unpack[BestOptions]
) -> Selected:
    """`best` for code that is not async; works inside a notebook's running loop too."""
    return _run_sync(lambda: best(problem, candidates, **keywords))


@_with_explicit_signature
async def stream(
    cases: Iterable[CaseLike], **keywords: Unpack[ManyOptions]
) -> AsyncGenerator[Selected, None]:
    """Choose in all cases and yield each result as soon as it is known, in the order in which they end.

    Cases are read as they are needed, so they may be a generator without end. A case that fails is a result
    with `error`. If the generator of cases raises, the cases read before are finished and yielded, and then
    the error is raised. Close the generator (`contextlib.aclosing`) to stop early.

    Raises `ModelError` when the endpoint cannot be used at all, such as with a wrong key.
    """
    source = _Source(cases)
    async with aclosing(_results(source, keywords)) as results:
        async for _, result in results:
            yield result
    if source.error is not None:
        raise source.error


@_with_explicit_signature
async def select_many(cases: Iterable[CaseLike], **keywords: Unpack[ManyOptions]) -> list[Selected]:
    """Choose in all cases at the same time; the results are in the order of the cases.

    A case that fails is a result with `error`, and nothing that was paid for is lost: if the generator of
    cases raises, the last result has that error; if the endpoint refuses everything after some cases are
    done, the others have that error. If it does so before, the `ModelError` is raised. If most replies of the
    judge cannot be read, `UnreadableJudgeError` is raised, whose `results` are those that were finished;
    `keep_going=True` continues. `progress` shows a bar on standard error.
    """
    source, found = _Source(cases), dict[int, Selected]()
    try:
        async with aclosing(_results(source, keywords)) as results:
            async for number, result in results:
                found[number] = result
    except UnreadableJudgeError as error:
        error.results = [found[number] for number in sorted(found)]
        raise
    except CapsError as error:
        if not found:
            raise
        for _ in source:
            pass  # collect the names of the remaining cases
        for number, name in enumerate(source.names):
            found.setdefault(number, failed(name, str(error)))
    if source.error is not None:
        message = f"{type(source.error).__name__}: {source.error}"
        found[len(source.names)] = failed("", f"the cases ended early, after {len(source.names)}: {message}")
    return [found[number] for number in sorted(found)]


@_with_explicit_signature
def select_many_sync(cases: Iterable[CaseLike], **keywords: Unpack[ManyOptions]) -> list[Selected]:
    """`select_many` for code that is not async; works inside a notebook's running loop too."""
    return _run_sync(lambda: select_many(cases, **keywords))


@_with_explicit_signature
async def solve(question: str | Case, **keywords: Unpack[SolveOptions]) -> Solved:
    """Generate n answers to a question and choose the best; where all agree, no judge is asked.

    `settings` changes fields of the strategy, the method or the preset. A key is not carried to another
    address: give `judge_api_key` where the judge has its own.

    Raises `ModelError` when the endpoint cannot be used, `CapsError` when nothing was generated or judged.
    """
    runner = _runner(keywords, SolveOptions, generating=True)
    await asyncio.to_thread(lambda: runner.endpoints)  # may download weights
    case = (
        question
        if isinstance(question, Case)
        else question_case(question, _domain_name(runner.config.domain))
    )
    with _errors_in_python():
        solution = await solve_case(runner, case)
    sampled, outcome = solution.sampled, solution.outcome
    if sampled.case is None or outcome is None:
        raise CapsError(f"question {case.id!r}: {sampled.failure}")
    if sampled.case.guessed:
        _log_guess(sampled.case)
    selected = _selected(outcome, runner)
    assert selected.winner is not None  # noqa: S101
    winner = sampled.case.candidates[selected.winner]
    return Solved(selected.text, final_answer(winner), sampled.case, sampled, selected)


@_with_explicit_signature
def solve_sync(question: str | Case, **keywords: Unpack[SolveOptions]) -> Solved:
    """`solve` for code that is not async; works inside a notebook's running loop too."""
    return _run_sync(lambda: solve(question, **keywords))


#: Keywords that are not settings of `RunConfig`, or have another name there.
_KEYS = ("api_key", "judge_api_key")
_RENAMED = {"n": "samples", "connections": "max_connections"}
_OBJECTS = ("strategy", "preset", "method")
_ADDRESSES = ("base_url", "judge_model", "judge_base_url")


_FLAG = re.compile(r"--([a-z][a-z0-9-]+)")


@contextmanager
def _errors_in_python() -> Iterator[None]:
    """Let errors name keywords, where the same code tells users of the command line about its options."""
    try:
        yield
    except CapsError as error:
        error.args = tuple(_FLAG.sub(_keyword, arg) if isinstance(arg, str) else arg for arg in error.args)
        raise


def _keyword(flag: re.Match[str]) -> str:
    name = {"set": "settings"}.get(flag[1], flag[1].replace("-", "_"))
    return name if name in (*get_type_hints(SolveOptions), *get_type_hints(ManyOptions)) else flag[0]


@_errors_in_python()
def _runner(keywords: Any, allowed: type, *, generating: bool = False) -> Runner:
    """The runner of a call: keywords, then the environment, then the defaults."""
    known = get_type_hints(allowed)
    for name in keywords:
        if name not in known:
            raise TypeError(f"unexpected keyword {name!r}: {nearest(name, list(known))}see help(caps.select)")
    given = {_RENAMED.get(name, name): value for name, value in keywords.items()}
    if len(given) < len(keywords):
        raise TypeError("give either connections or max_connections, not both")
    given.pop("progress", None)
    keys = {name: given.pop(name, None) for name in _KEYS}
    judge = None if isinstance(given.get("judge"), str) else given.pop("judge", None)
    model = None if isinstance(given.get("model"), str) else given.get("model")
    if model is not None:
        given["model"] = model_name(model)
        given = dict.fromkeys(_ADDRESSES) | given  # those of the environment are not meant for an object
    judge_objects: dict[str, Any] = {}
    if isinstance(judge, list | tuple):
        given["judges"], judge_objects = _several_judges(judge)
        judge = None
    objects = {name: given.pop(name) for name in _OBJECTS if not isinstance(given.get(name, ""), str)}
    fields = {_RENAMED.get(name, name) for name in known} & options().keys()
    refuse_misspelt_variables()
    values = read_environment(fields - given.keys() - objects.keys())
    for name, value in given.items():
        empty = value is None and not find_option(name).optional
        values[name] = options()[name].default if empty else value
    config = RunConfig(**values)
    found = Keys.find(config, **keys)
    return Runner(
        config,
        keys=found,
        judge=judge,
        judge_objects=judge_objects,
        model=model,
        generating=generating,
        warn=_log.warning,
        **objects,
    )


def _several_judges(judges: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The tables of several judges, and the objects among them by the names of their tables."""
    tables, objects = list[Any](), dict[str, Any]()
    for one in judges:
        if isinstance(one, str | Mapping):
            tables.append(one)
            continue
        name = getattr(one, "judge_id", None) or getattr(one, "name", None) or getattr(one, "__name__", "")
        named = str(name or type(one).__name__)
        tables.append({"name": named, "judge": f"object:{named}"})
        objects[named] = one
    return tables, objects


async def _select_one(case: Case, runner: Runner) -> Selected:
    with _errors_in_python():
        await _find_models(runner)
        async with runner.session() as session:
            cases = _with_logged_guesses(agree_on_domain([case]), runner)
            (outcome,) = [one async for one in session.run(cases)]
        return _selected(outcome, runner)


def _with_logged_guesses(cases: Iterable[Case | InputError], runner: Runner) -> Iterator[Case | InputError]:
    """The same cases; each guessed domain is logged once, with what it was guessed from."""
    logged = set[tuple[str, str]]()
    for case in cases:
        if isinstance(case, Case) and case.guessed and runner.config.domain is None:
            if (case.domain, case.reason) not in logged:
                _log_guess(case)
            logged.add((case.domain, case.reason))
        yield case


def _log_guess(case: Case) -> None:
    why = f" ({case.reason})" if case.reason else ""
    _log.info('guessed the domain %s%s; domain="…" of the call or of the case states it', case.domain, why)


async def _find_models(runner: Runner) -> None:
    if runner.asks_model:
        await asyncio.to_thread(lambda: runner.endpoints)  # weights may have to be fetched


def _selected(outcome: Outcome, runner: Runner) -> Selected:
    if outcome.selection is None:
        raise CapsError(f"case {outcome.name!r}: {outcome.failure}")
    return selected_of(outcome, runner.config, runner.price)


async def _results(source: "_Source", keywords: ManyOptions) -> AsyncGenerator[tuple[int, Selected], None]:
    """Results with the number of their case, in order of completion."""
    runner = _runner(keywords, ManyOptions)
    with _errors_in_python():
        await _find_models(runner)
        async with runner.session() as session:
            with _RELAXED_GC, _bar(source.total, shown=keywords.get("progress", False)) as advance:
                async with aclosing(session.run(_with_logged_guesses(source, runner))) as outcomes:
                    async for outcome in outcomes:
                        advance()
                        yield outcome.number, selected_of(outcome, runner.config, runner.price)


@dataclass(slots=True)
class _Source:
    """The cases of a call, read once; a bad case fails alone, and an error of the iterator is stored."""

    cases: Iterable[CaseLike]
    names: list[str] = field(default_factory=list)
    error: Exception | None = None
    total: int | None = None
    _rest: Iterator[CaseLike] = field(init=False)

    def __post_init__(self) -> None:
        if isinstance(self.cases, str | bytes | Mapping | Case):
            raise InputError(
                f"cases: must be several cases, not {type(self.cases).__name__}; for the cases of a file see "
                "caps select, for one case caps.select"
            )
        self.total = len(self.cases) if isinstance(self.cases, Sequence) else None
        self._rest = iter(self.cases)

    def __iter__(self) -> Iterator[Case | InputError]:
        return agree_on_domain(self._read())

    def _read(self) -> Iterator[Case | InputError]:
        for number in count(len(self.names) + 1):
            try:
                one = next(self._rest)
            except StopIteration:
                return
            except Exception as error:
                self.error = error
                return
            try:
                case: Case | InputError = _case_of(one, default_id=str(number))
            except InputError as error:
                case = InputError(f"case {number}: {error}")
            self.names.append("" if isinstance(case, InputError) else case.id)
            yield case


def _case_of(case: object, *, default_id: str = DEFAULT_ID) -> Case:
    if isinstance(case, Mapping):
        case = parse_row(standard_row(dict(case), {}), default_id=default_id)
    if not isinstance(case, Case):
        raise InputError(f"must be a Case or a mapping with its fields, not {type(case).__name__}")
    if not case.candidates:
        raise InputError(f"case {case.id!r}: candidates: is empty; at least one is needed")
    return case


def _case_of_texts(problem: str, candidates: Sequence[str | Candidate], domain: str | None) -> Case:
    if isinstance(candidates, str):
        raise InputError("candidates: must be a list of texts, not one text")
    parsed = tuple(one if isinstance(one, Candidate) else Candidate(one) for one in candidates)
    invalid = next((one.text for one in parsed if not isinstance(one.text, str)), None)
    if invalid is not None or not isinstance(problem, str):
        kind = type(problem if invalid is None else invalid).__name__
        raise InputError(f"problem and candidates: must be texts, not {kind}")
    stated = _domain_name(domain)
    return _case_of(
        Case(
            DEFAULT_ID,
            Problem.of(problem),
            parsed,
            stated or guess_domain({}, parsed),
            guessed=stated is None,
        )
    )


def _domain_name(domain: str | None) -> str | None:
    """The name of a domain that is given by name or path."""
    return None if domain is None else domain_named(domain).name


class _RelaxedGarbageCollection:
    """Runs the garbage collector less often while many cases run.

    Judging leaves few cycles, but with Python's defaults searching the heap takes a tenth of a run. A
    collector that is off, or runs less often already, is left alone.
    """

    NEW_OBJECTS = (20_000, 20, 20)

    def __init__(self) -> None:
        self._lock, self._calls = threading.Lock(), 0
        self._before: tuple[int, int, int] | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._calls += 1
            before = gc.get_threshold()
            if self._calls == 1 and gc.isenabled() and 0 < before[0] < self.NEW_OBJECTS[0]:
                self._before = before
                gc.set_threshold(*self.NEW_OBJECTS)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._calls -= 1
            if self._calls == 0 and self._before is not None:
                if gc.get_threshold() == self.NEW_OBJECTS:  # unchanged in the meantime
                    gc.set_threshold(*self._before)
                self._before = None


_RELAXED_GC = _RelaxedGarbageCollection()


@contextmanager
def _bar(total: int | None, *, shown: bool) -> Iterator[Callable[[], object]]:
    """A progress bar on standard error or in a notebook; yields a function that counts a case."""
    if not shown:
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415  (rich takes a while to load)
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    console = Console(stderr=True)
    if console.is_jupyter:
        bar = _NotebookBar(total)
        try:
            yield bar.advance
        finally:
            bar.show()
        return
    columns = (TextColumn("cases"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("cases", total=total)
        yield lambda: progress.advance(task)


class _NotebookBar:
    """The progress bar of a notebook's cell; one output that is replaced, also from another thread."""

    SECONDS = 0.2  # between updates

    def __init__(self, total: int | None) -> None:
        from IPython.display import display  # noqa: PLC0415  (there in every notebook, and only there)

        self._total, self._done, self._shown_at = total, 0, time.monotonic()
        self._handle = display(self, display_id=True)

    def advance(self) -> None:
        """Count a case."""
        self._done += 1
        if time.monotonic() - self._shown_at >= self.SECONDS:
            self.show()

    def show(self) -> None:
        """Update the display."""
        self._shown_at = time.monotonic()
        self._handle.update(self)

    def __repr__(self) -> str:
        return f"cases {self._done}/{'?' if self._total is None else self._total}"

    def _repr_html_(self) -> str:
        known = "" if self._total is None else f" value='{self._done}' max='{self._total}'"
        return f"<div><progress{known} style='width:20em'></progress> {self!r}</div>"


def _run_sync(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    return _run_in_thread(work)


def _run_in_thread(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run in the event loop of a new thread, since this thread's loop is running.

    An interruption, such as a notebook's stop button, also cancels the run, which would go on spending.
    """
    results: list[T] = []
    failures: list[BaseException] = []
    started: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []
    cancelled, ended = threading.Event(), threading.Event()

    async def guarded() -> T:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        started.append((asyncio.get_running_loop(), task))
        if cancelled.is_set():
            raise asyncio.CancelledError
        return await work()

    def run() -> None:
        try:
            results.append(asyncio.run(guarded()))
        except BaseException as error:
            failures.append(error)
        finally:
            ended.set()

    def wait() -> None:
        # In short waits, because the system may hand a signal to any thread, and Python's handler runs in
        # this one, once it wakes. `thread.join` will not do: interrupted once, it no longer waits (3.11).
        while not ended.wait(0.1):
            pass

    thread = threading.Thread(target=copy_context().run, args=(run,))  # a tool may count usage by context
    try:
        thread.start()  # an interruption may arrive while the thread starts, too
        wait()
    except BaseException:
        cancelled.set()
        for loop, task in started:
            with suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(task.cancel)
        if thread.ident is not None:
            wait()
        raise
    if failures:
        raise failures[0]
    return results[0]
