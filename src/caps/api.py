"""The Python API: choose the best candidate of one case, of many, or of a stream of them.

A plain name is async; the same name with `_sync` is not, and works inside a notebook's running loop too.

    best = caps.best_sync("What is 17 * 23?", ["391", "401"], model="qwen3-14b", base_url=URL)
    results = caps.select_many_sync(cases, model="qwen3-14b", base_url=URL, progress=True)
    async for result in caps.stream(cases, judge=my_function): ...

Keywords have the names and meanings of the settings in `RunConfig`. Their defaults come from the environment
variables of the command line (`CAPS_MODEL`, `CAPS_BASE_URL`, `CAPS_API_KEY`, ...). All cases of a call share
connections, journal and budgets. There is no journal unless one is named.

`open` shares all of that between many calls, as a program that serves requests should:

    async with caps.open(model="qwen3-14b", base_url=URL) as client:
        best = await client.best("What is 17 * 23?", ["391", "401"])

The logger `caps` and those below it report what happens: WARNING problems, INFO calls, costs and guesses,
DEBUG cases and requests. No message contains texts of cases, prompts, replies or keys.
"""

import asyncio
import gc
import inspect
import logging
import re
import threading
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
from typing import Any, Protocol, TypeVar, Unpack, get_type_hints

from caps.config import Keys, RunConfig, find_option, options
from caps.config.sources import read_environment, refuse_misspelt_variables
from caps.core.errors import CapsError, InputError, NoEndpointError, UnreadableJudgeError
from caps.core.settings import nearest
from caps.core.text import plural
from caps.core.types import DEFAULT_ID, Candidate, Case, Problem
from caps.costs.ledger import Sums
from caps.datasets.case_files import parse_row
from caps.datasets.fields import standard_row
from caps.datasets.imports import cases_of_table
from caps.datasets.reading import frame_rows
from caps.engines.base import Outcome
from caps.evidence.anatomy import final_answer
from caps.evidence.domains import agree_on_domain, domain_named, guess_domain
from caps.judging.base import NoJudge
from caps.models.base import model_name
from caps.models.endpoints import Callbacks
from caps.results import (
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
from caps.sampling.base import Sampled
from caps.session.keywords import (
    BestOptions,
    ManyOptions,
    OpenOptions,
    SelectOptions,
    SolveOptions,
)
from caps.session.resolve import Objects, Resolved, resolve, with_generation
from caps.session.session import Session, open_session
from caps.session.solving import Solver, open_solver, question_case

__all__ = [
    "BestOptions", "Client", "Comparison", "Interval", "LoadedRun", "ManyOptions", "OpenOptions",
    "SelectOptions", "Selected", "SolveOptions", "Solved", "best", "best_sync", "compare_results", "load_run",
    "open", "rows", "select",
    "select_many", "select_many_sync", "select_sync", "solve", "solve_sync", "stream",
]  # fmt: skip

_log = logging.getLogger("caps")

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
CaseLike = Case | Mapping[str, Any]


class _HasColumns(Protocol):
    @property
    def columns(self) -> Any: ...


class _HasColumnNames(Protocol):
    @property
    def column_names(self) -> Any: ...


Table = _HasColumns | _HasColumnNames  # of pandas or Polars; of Arrow or Hugging Face datasets


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
    defaults |= {"n": defaults["samples"], "progress": False}
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=kind)
        for name, kind in get_type_hints(keywords).items()
    ]
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function


class Client:
    """One open session for many calls, which may run at the same time; see `open`.

    Connections, journal and total budgets are shared. A failed call leaves the others alone.
    """

    def __init__(self, session: Session, stack: AsyncExitStack, solver: Solver | None = None) -> None:
        self._resolved, self._session, self._stack = session.resolved, session, stack
        self._solver = solver
        self._opening = asyncio.Lock()

    async def select(self, case: CaseLike) -> Selected:
        """Choose the best candidate of a case: a `Case`, or a mapping with the fields of a line of cases."""
        with _errors_in_python(), _CallLog() as log:
            cases = _with_logged_guesses(agree_on_domain([_case_of(case)]), self._resolved)
            (outcome,) = [outcome async for outcome in self._session.run(cases)]
            return _selected(outcome, self._resolved, log)

    async def best(
        self, problem: str, candidates: Sequence[str | Candidate], *, domain: str | None = None
    ) -> Selected:
        """Choose the best of several answers to a problem."""
        return await self.select(_case_of_texts(problem, candidates, domain or self._resolved.config.domain))

    async def stream(
        self,
        cases: Iterable[CaseLike] | Table,
        *,
        group_by: str | None = None,
        map: Mapping[str, str] | str | None = None,  # noqa: A002  (the name of the option)
        progress: bool = False,
    ) -> AsyncGenerator[Selected, None]:
        """Choose in all cases and yield each result as soon as it is known; see the function `stream`."""
        source = _source(cases, group_by, map)
        async with aclosing(self._results(source, progress=progress)) as results:
            async for _, result in results:
                yield result
        if source.error is not None:
            raise source.error

    async def select_many(
        self,
        cases: Iterable[CaseLike] | Table,
        *,
        group_by: str | None = None,
        map: Mapping[str, str] | str | None = None,  # noqa: A002  (the name of the option)
        progress: bool = False,
    ) -> list[Selected]:
        """Choose in all cases at the same time, in the order of the cases; see the function `select_many`."""
        source, found = _source(cases, group_by, map), dict[int, Selected]()
        try:
            async with aclosing(self._results(source, progress=progress)) as results:
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
            read = len(source.names)
            message = f"{type(source.error).__name__}: {source.error}"
            found[read] = failed("", f"the cases ended early, after {read}: {message}")
        return [found[number] for number in sorted(found)]

    async def solve(self, question: str | Case) -> Solved:
        """Generate answers to a question and choose the best; where all agree, no judge is asked."""
        config = self._resolved.config
        case = (
            question if isinstance(question, Case) else question_case(question, _domain_name(config.domain))
        )
        with _errors_in_python(), _CallLog() as log:
            solution = await (await self._open_solver()).solve(case)
            sampled, outcome = solution.sampled, solution.outcome
            if sampled.case is None or outcome is None:
                raise CapsError(f"question {case.id!r}: {sampled.failure}")
            if sampled.case.guessed:
                _log_guess(sampled.case)
            selected = _selected(outcome, self._resolved, log)
        assert selected.winner is not None  # noqa: S101
        winner = sampled.case.candidates[selected.winner]
        return Solved(selected.text, final_answer(winner), sampled.case, sampled, selected)

    async def _open_solver(self) -> Solver:
        """What generates answers; it is opened once, when the first question needs it."""
        async with self._opening:
            if self._solver is None:
                resolved = await asyncio.to_thread(with_generation, self._resolved)  # may download weights
                self._solver = await self._stack.enter_async_context(open_solver(resolved))
            return self._solver

    async def _results(
        self, source: "_Source", *, progress: bool
    ) -> AsyncGenerator[tuple[int, Selected], None]:
        """Results with the number of their case, in order of completion."""
        resolved = self._resolved
        with (
            _errors_in_python(),
            _RELAXED_GC,
            _bar(source.total, shown=progress) as advance,
            _CallLog() as log,
        ):
            async with aclosing(self._session.run(_with_logged_guesses(source, resolved))) as outcomes:
                async for outcome in outcomes:
                    advance()
                    yield outcome.number, log.add(selected_of(outcome, resolved.config, resolved.price))


@_with_explicit_signature
def open(**keywords: Unpack[OpenOptions]) -> AbstractAsyncContextManager[Client]:  # noqa: A001
    """One client for many calls: `async with caps.open(model=...) as client`.

    Keywords and errors are those of the functions with the names of the client's methods. `settings` may
    change the sampling method and the preset if one of the keywords of generation, such as `n`, is given.
    """
    generation = get_type_hints(SolveOptions).keys() - get_type_hints(BestOptions).keys()
    return _open(keywords, OpenOptions, generating=bool(generation & keywords.keys()))


@asynccontextmanager
async def _open(
    keywords: Any, allowed: type, *, generating: bool = False, judge_needed: bool = True
) -> AsyncIterator[Client]:
    work = partial(_resolve, keywords, allowed, generating=generating, judge_needed=judge_needed)
    resolved = await asyncio.to_thread(work)  # reads files, and may download weights
    async with AsyncExitStack() as stack:
        with _errors_in_python():
            if generating:
                solver = await stack.enter_async_context(open_solver(resolved))
                client = Client(solver.session, stack, solver)
            else:
                client = Client(await stack.enter_async_context(open_session(resolved)), stack)
        yield client


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
    given = _case_of(case)
    async with _open(keywords, SelectOptions, judge_needed=False) as client:
        return await client.select(given)


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
    async with _open(keywords, BestOptions, judge_needed=False) as client:
        return await client.best(problem, candidates)


@_with_explicit_signature
def best_sync(
    problem: str, candidates: Sequence[str | Candidate], **keywords: Unpack[BestOptions]
) -> Selected:
    """`best` for code that is not async; works inside a notebook's running loop too."""
    return _run_sync(lambda: best(problem, candidates, **keywords))


@_with_explicit_signature
async def stream(
    cases: Iterable[CaseLike] | Table, **keywords: Unpack[ManyOptions]
) -> AsyncGenerator[Selected, None]:
    """Choose in all cases and yield each result as soon as it is known, in the order in which they end.

    `cases` may also be a table, as in `select_many`. Cases are read as they are needed, so they may be a
    generator without end. A case that fails is a result with `error`. If the generator of cases raises, the
    cases read before are finished and yielded, and then the error is raised. Close the generator
    (`contextlib.aclosing`) to stop early.

    Raises `ModelError` when the endpoint cannot be used at all, such as with a wrong key.
    """
    async with (
        _open(keywords, ManyOptions) as client,
        aclosing(client.stream(cases, **_of_reading(keywords))) as results,
    ):
        async for result in results:
            yield result


@_with_explicit_signature
async def select_many(cases: Iterable[CaseLike] | Table, **keywords: Unpack[ManyOptions]) -> list[Selected]:
    """Choose in all cases at the same time; the results are in the order of the cases.

    `cases` may also be a data frame of pandas or Polars, an Arrow table or a Hugging Face dataset. A row is a
    problem with a list of candidates, or one candidate; then rows of the same problem, or with the same value
    in the column `group_by`, are one case. `map` names columns whose names are not the usual ones, such as
    `{"problem": "task", "candidates": "left+right"}`.

    A case that fails is a result with `error`, and nothing that was paid for is lost: if the generator of
    cases raises, the last result has that error; if the endpoint refuses everything after some cases are
    done, the others have that error. If it does so before, the `ModelError` is raised. If most replies of the
    judge cannot be read, `UnreadableJudgeError` is raised, whose `results` are those that were finished;
    `keep_going=True` continues. `progress` shows a bar on standard error.
    """
    async with _open(keywords, ManyOptions) as client:
        return await client.select_many(cases, **_of_reading(keywords))


@_with_explicit_signature
def select_many_sync(cases: Iterable[CaseLike] | Table, **keywords: Unpack[ManyOptions]) -> list[Selected]:
    """`select_many` for code that is not async; works inside a notebook's running loop too."""
    return _run_sync(lambda: select_many(cases, **keywords))


@_with_explicit_signature
async def solve(question: str | Case, **keywords: Unpack[SolveOptions]) -> Solved:
    """Generate n answers to a question and choose the best; where all agree, no judge is asked.

    `settings` changes fields of the strategy, the method or the preset. A key is not carried to another
    address: give `judge_api_key` where the judge has its own.

    Raises `ModelError` when the endpoint cannot be used, `CapsError` when nothing was generated or judged.
    """
    async with _open(keywords, SolveOptions, generating=True) as client:
        return await client.solve(question)


@_with_explicit_signature
def solve_sync(question: str | Case, **keywords: Unpack[SolveOptions]) -> Solved:
    """`solve` for code that is not async; works inside a notebook's running loop too."""
    return _run_sync(lambda: solve(question, **keywords))


#: Keywords that say how cases are read.
_READING = ("group_by", "map", "progress")


def _of_reading(keywords: Any) -> dict[str, Any]:
    return {name: keywords[name] for name in _READING if name in keywords}


#: Keywords that are not settings of `RunConfig`, or have another name there.
_KEYS = ("api_key", "judge_api_key")
_RENAMED = {"n": "samples"}
_OBJECTS = ("strategy", "preset", "method")
_ADDRESSES = ("base_url", "judge_model", "judge_base_url")


#: An option of the command line in a message, perhaps with its value.
_FLAG = re.compile(
    r"--(?P<name>[a-z][a-z0-9-]+)(?: (?:(?P<key>[\w.]+)=(?P<entry>[\w.+…]+)|(?P<value>[\w:/.-]*[\w/])))?"
)
_PLACEHOLDER = re.compile(r"[A-Z]{3,}|https?://.+|auto|embedded")


@contextmanager
def _errors_in_python() -> Iterator[None]:
    """Let errors name keywords, where the same code tells users of the command line about its options."""
    try:
        yield
    except CapsError as error:
        error.args = tuple(_in_python(arg) if isinstance(arg, str) else arg for arg in error.args)
        raise


def _in_python(message: str) -> str:
    return _FLAG.sub(_keyword, message)


def _keyword(flag: re.Match[str]) -> str:
    """The keyword of an option that a message names: `base_url="http://…"` for `--base-url http://…`."""
    name = {"set": "settings"}.get(flag["name"], flag["name"].replace("-", "_"))
    if name not in (*get_type_hints(SolveOptions), *get_type_hints(ManyOptions)):
        return flag[0]
    if flag["key"]:
        return f'{name}={{"{flag["key"]}": "{flag["entry"]}"}}'
    option, value = options().get(_RENAMED.get(name, name)), flag["value"]
    if value and (_PLACEHOLDER.fullmatch(value) or (option is not None and value in option.choices)):
        return f'{name}="{value}"'
    said = f"{name}=True" if option is not None and option.kind == "flag" else name
    return said if value is None else f"{said} {value}"


@_errors_in_python()
def _resolve(keywords: Any, allowed: type, *, generating: bool, judge_needed: bool) -> Resolved:
    """The resolved config of a call: keywords, then the environment, then the defaults.

    Unless a judge is needed for sure, a missing endpoint is an error only once a judge is asked.
    """
    known = get_type_hints(allowed)
    for name in keywords:
        if name not in known:
            raise TypeError(f"unexpected keyword {name!r}: {nearest(name, list(known))}see help(caps.select)")
    given = {_RENAMED.get(name, name): value for name, value in keywords.items()}
    for name in _READING:
        given.pop(name, None)
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
    fields = {_RENAMED.get(name, name) for name in known} & options().keys() - {*_READING}
    refuse_misspelt_variables()
    values = read_environment(fields - given.keys() - objects.keys())
    for name, value in given.items():
        empty = value is None and not find_option(name).optional
        values[name] = options()[name].default if empty else value
    config = RunConfig(**values)
    given_objects = Objects(judge=judge, judges=judge_objects, model=model, **objects)
    finish = partial(
        resolve, config, Keys.find(config, **keys), generating=generating, callbacks=Callbacks(_warn)
    )
    try:
        return finish(objects=given_objects)
    except NoEndpointError as error:
        if judge_needed:
            raise
        return finish(objects=replace(given_objects, judge=NoJudge(error)))


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


def _with_logged_guesses(
    cases: Iterable[Case | InputError], resolved: Resolved
) -> Iterator[Case | InputError]:
    """The same cases; each guessed domain is logged once, with what it was guessed from."""
    logged = set[tuple[str, str]]()
    for case in cases:
        if isinstance(case, Case) and case.guessed and resolved.config.domain is None:
            if (case.domain, case.reason) not in logged:
                _log_guess(case)
            logged.add((case.domain, case.reason))
        yield case


def _log_guess(case: Case) -> None:
    why = f" ({case.reason})" if case.reason else ""
    _log.info('guessed the domain %s%s; domain="…" of the call or of the case states it', case.domain, why)


def _selected(outcome: Outcome, resolved: Resolved, log: "_CallLog") -> Selected:
    result = log.add(selected_of(outcome, resolved.config, resolved.price))
    if result.error is not None:
        raise CapsError(f"case {outcome.name!r}: {result.error}") from outcome.error
    return result


class _CallLog:
    """Logs what a call of the API chose and cost; nothing of texts, also not those of errors."""

    def __init__(self) -> None:
        self._started, self._costs = time.monotonic(), Sums()
        self._usd: float | None = None
        self._cases = self._failed = self._provisional = 0

    def __enter__(self) -> "_CallLog":
        return self

    def add(self, result: Selected) -> Selected:
        """Count a result, and return it."""
        provisional = result.selection is not None and result.selection.provisional
        self._cases += 1
        self._failed += result.error is not None
        self._provisional += provisional
        self._costs.add(result.ledger.total())
        if result.usd is not None:
            self._usd = (self._usd or 0.0) + result.usd
        if _log.isEnabledFor(logging.DEBUG):
            chosen = "failed" if result.winner is None else f"candidate {result.winner}"
            causes = {reason.partition(":")[0] for reason in result.ledger.unanswered}
            _log.debug(
                "case %r: %s%s, %s, unanswered: %s",
                result.id, chosen, ", provisional" if provisional else "",
                plural(result.ledger.total().calls, "judge call"), ", ".join(sorted(causes)) or "none",
            )  # fmt: skip
        return result

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        costs, seconds = self._costs, time.monotonic() - self._started
        usd = "" if self._usd is None else f", ${self._usd:.4f}"
        _log.info(
            "%s (%d failed, %d provisional) in %.2f s: %s, %d tokens read, %d written%s%s",
            plural(self._cases, "case"), self._failed, self._provisional, seconds,
            plural(costs.calls, "judge call"), costs.asked, costs.output, usd,
            "" if kind is None else f"; then {kind.__name__}",
        )  # fmt: skip


@_errors_in_python()
def _source(cases: Any, group_by: str | None, fields: Mapping[str, str] | str | None) -> "_Source":
    """The cases of a call; a table, or rows that are to be grouped or renamed, is read as a file would be."""
    rows = frame_rows(cases)
    if rows is None and group_by is None and not fields:
        return _Source(cases)
    if rows is None and isinstance(cases, Iterable) and not isinstance(cases, str | bytes | Mapping):
        rows = map(_as_row, cases)
    if rows is None:
        return _Source(cases)  # which says what is wrong
    read = cases_of_table(rows, fields or "", group_by=group_by, say=_log.info, warn=_warn)
    first = next(read, None)  # what is wrong with all of them is raised here
    return _Source(read if first is None else chain([first], read))


def _warn(message: str) -> None:
    _log.warning("%s", _in_python(message))


def _as_row(case: object) -> dict[str, Any]:
    if not isinstance(case, Mapping):
        raise InputError(f"group_by and map are for rows, which are mappings, not {type(case).__name__}")
    return dict(case)


@dataclass(slots=True)
class _Source:
    """The cases of a call, read once; a bad case fails alone, and an error of the iterator is stored."""

    cases: Iterable[CaseLike | InputError]
    names: list[str] = field(default_factory=list)
    error: Exception | None = None
    total: int | None = None
    _rest: Iterator[CaseLike | InputError] = field(init=False)

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
                case = one if isinstance(one, InputError) else _case_of(one, default_id=str(number))
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
