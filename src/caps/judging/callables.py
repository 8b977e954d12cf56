"""A Python function as the judge.

The function gets texts: the problem and the view of each candidate at the level of the ask, the partial view
at E1, or what separates the two where the run shows that, and the full view at E2. These attributes of the
function (or of a callable object) change that:

* `full_views = True`: it always gets full views.
* `judge_id = "..."`: its answers are stored in the journal under this name and reused. Change the name when
  the function changes. Without it nothing is stored, and every run asks again.
* `connections = 4`: how many calls run at the same time, unless `max_connections` is set (otherwise 16).
* `rate(problem, a) -> float` from 1 to 10, `pick(problem, candidates) -> int` (the index of the best, from
  0): for strategies that ask for ratings or picks.

Each may return `(answer, Usage(...))` to report the cost of the call. The cost of a call is assumed to be the
highest so far, so the calls in progress when a budget ends may exceed it.

An exception, an invalid answer or a timeout leaves that one ask unanswered, with the reason. A function that
is not async runs in a separate thread, so it may block. A thread cannot be stopped: an abandoned call
continues in the background, but does not keep the program alive.
"""

import asyncio
import inspect
import json
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, TypeAlias

from caps.core.errors import SettingError
from caps.core.play import AskKind
from caps.core.text import short_repr
from caps.core.types import (
    Answer,
    Ask,
    Group,
    Level,
    Pairing,
    Pick,
    Rating,
    Solo,
    Unanswered,
    Usage,
    Verdict,
    verdict_of,
)
from caps.costs.budget import Budget
from caps.journal.records import ReplyStore
from caps.judging.base import LOST, NOTHING, Attempt, Judge, PreparedCase, Ruling, short_reason

Compared: TypeAlias = str | Verdict | tuple[str | Verdict, Usage]
JudgeFunction: TypeAlias = Callable[[str, str, str], Compared | Awaitable[Compared]]

DEFAULT_TIMEOUT = 600.0  # seconds
KIND = "callable verdict"  # of the journal's facts
LONGEST_TIMEOUT = 1e9  # seconds; the event loop takes no infinite timeout

_log = logging.getLogger(__name__)


def as_judge(judge: "Judge | JudgeFunction", *, timeout: float = DEFAULT_TIMEOUT) -> Judge:
    """The judge itself, or a function wrapped as one; `SettingError` for anything else."""
    if isinstance(judge, type):
        raise SettingError(f"judge {judge.__name__}: is a class; give an object, {judge.__name__}(...)")
    if hasattr(judge, "rule"):
        missing = [name for name in ("rule", "max_usage") if not callable(getattr(judge, name, None))]
        if missing:
            raise SettingError(f"judge {_name(judge)}: has no method {missing[0]!r}, which a Judge needs")
        return judge  # type: ignore[return-value]
    if not callable(judge):
        raise SettingError(
            f"judge {_name(judge)}: must be a function (problem, a, b), or an object with the methods "
            "'rule' and 'max_usage'"
        )
    return CallableJudge(judge, timeout=timeout)


class CallableJudge:
    """Answers with a Python function; see the module's docstring."""

    def __init__(
        self, function: JudgeFunction, *, timeout: float = DEFAULT_TIMEOUT, journal: ReplyStore | None = None
    ) -> None:
        self._function, self._timeout, self._journal = function, timeout, journal
        self._rate, self._pick = (getattr(function, name, None) for name in ("rate", "pick"))
        self._full_views = bool(getattr(function, "full_views", False))
        self._most = NOTHING
        self._has_raised = False
        judge_id = getattr(function, "judge_id", None)
        if judge_id is not None and not (isinstance(judge_id, str) and judge_id):
            raise SettingError(f"judge {_name(function)}: judge_id = {judge_id!r}: must be a text")
        self.judge_id: str | None = judge_id
        connections = getattr(function, "connections", None)
        if connections is not None:
            if not isinstance(connections, int) or isinstance(connections, bool) or connections < 1:
                raise SettingError(
                    f"judge {_name(function)}: connections = {connections!r}: must be a whole number of at "
                    "least 1"
                )
            self.connections = connections

    @property
    def answers(self) -> frozenset[AskKind]:
        """The kinds of asks it can answer."""
        kinds: set[AskKind] = {"pair"}
        kinds.update(["rating"] if callable(self._rate) else [])
        kinds.update(["pick"] if callable(self._pick) else [])
        return frozenset(kinds)

    def kept_in(self, journal: ReplyStore) -> "CallableJudge":
        """The same judge with its answers stored in a journal if it has a `judge_id`."""
        if self.judge_id is None:
            return self
        return CallableJudge(self._function, timeout=self._timeout, journal=journal)

    async def rule(self, prepared: PreparedCase, ask: Ask, budget: Budget) -> Ruling:
        """Call the function; an exception, an invalid answer or a timeout gives `Unanswered`."""
        function, texts = self._call_of(prepared, ask)
        if function is None:
            return Ruling(Unanswered(f"this judge cannot answer a {_kind(ask)}"))
        key = self._key(ask, texts)
        if key is not None and self._journal is not None:
            stored = await self._journal.recall_fact(KIND, key)
            if stored is not None:
                return await self._replayed(ask, stored, key, budget)
        most = self._most
        if (shortage := await budget.reserve(most)) is not None:
            return Ruling(Unanswered("budget"), shortage=shortage)
        usage, started = NOTHING, time.perf_counter()
        answer: Answer | None = None
        error: Exception | None = None
        try:
            answer, usage, error = await self._asked(function, ask, texts, budget.deadline)
        finally:
            budget.settle(most, usage, replayed=False)
        self._most = Usage(max(self._most.prompt, usage.prompt), max(self._most.output, usage.output))
        if key is not None and self._journal is not None and not isinstance(answer, Unanswered):
            await self._journal.record(KIND, key, [_plain(ask, answer), usage.counts])
        latency = time.perf_counter() - started
        return Ruling(answer, (_attempt(answer, usage, key, latency, replayed=False),), error=error)

    def max_usage(self, prepared: PreparedCase, ask: Ask) -> Usage:  # noqa: ARG002
        """The highest cost of a call so far: a function does not announce its cost."""
        return self._most

    def _call_of(self, prepared: PreparedCase, ask: Ask) -> tuple[Callable[..., Any] | None, list[Any]]:
        """The function to call (None if there is none) and its arguments."""
        views = list(prepared.evidence.shown(replace(ask, level=Level.FULL) if self._full_views else ask))
        problem = prepared.case.problem.text
        if isinstance(ask, Pairing):
            return self._function, [problem, *views]
        if isinstance(ask, Solo):
            return self._rate if callable(self._rate) else None, [problem, *views]
        return self._pick if callable(self._pick) else None, [problem, views]

    async def _asked(
        self, function: Callable[..., Any], ask: Ask, texts: Sequence[Any], deadline: float | None
    ) -> tuple[Answer, Usage, Exception | None]:
        clock = asyncio.get_running_loop().time
        own_limit = clock() + min(self._timeout, LONGEST_TIMEOUT)
        until = own_limit if deadline is None else min(own_limit, deadline)
        try:
            async with asyncio.timeout_at(until) as limit:
                returned = await _call(function, texts)
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                return Unanswered("time" if until != own_limit else "timeout"), NOTHING, None
            self._log_exception(error)
            return Unanswered(short_reason(error)), NOTHING, error
        return *_read(ask, returned), None

    def _log_exception(self, error: Exception) -> None:
        """Log what the function raised, with its traceback; after the first time for debugging only."""
        level = logging.DEBUG if self._has_raised else logging.WARNING
        self._has_raised = True
        _log.log(level, "the judge %s raised %s", _name(self._function), type(error).__name__, exc_info=error)

    def _key(self, ask: Ask, texts: Sequence[Any]) -> str | None:
        """The journal key of an answer: the judge's name, the kind of ask, its texts and the draw."""
        if self.judge_id is None or self._journal is None:
            return None
        listed = [self.judge_id, _kind(ask), ask.draw, list(texts)]
        return sha256(json.dumps(listed).encode()).hexdigest()

    async def _replayed(self, ask: Ask, stored: Any, key: str, budget: Budget) -> Ruling:
        plain, counts = stored
        answer, usage = _read(ask, Verdict(*plain) if isinstance(ask, Pairing) else plain)[0], Usage(*counts)
        budget = budget.for_stored_replies()
        if (shortage := await budget.reserve(usage)) is not None:
            return Ruling(Unanswered("budget"), shortage=shortage)
        budget.settle(usage, usage, replayed=True)
        return Ruling(answer, (_attempt(answer, usage, key, 0.0, replayed=True),))


async def _call(function: Callable[..., Any], texts: Sequence[Any]) -> Any:
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called):
        return await function(*texts)
    returned = await _in_thread(function, texts)
    return await returned if inspect.isawaitable(returned) else returned


async def _in_thread(function: Callable[..., Any], texts: Sequence[Any]) -> Any:
    """Call in a daemon thread, which, unlike a pool thread, does not delay the end of the program."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)

    def run() -> None:
        value: Any = None
        failed: Exception | None = None
        try:
            value = function(*texts)
        except StopIteration as error:  # a future cannot hold it
            failed = RuntimeError(f"StopIteration: {error}")
        except Exception as error:
            failed = error
        except BaseException as error:
            failed = RuntimeError(f"{type(error).__name__}: {error}")  # must not end the event loop
        try:
            loop.call_soon_threadsafe(settle, value, failed)
        except RuntimeError:
            return  # the loop is closed

    threading.Thread(target=run, daemon=True, name="caps judge").start()
    return await done


def _read(ask: Ask, returned: Any) -> tuple[Answer, Usage]:
    """The answer that a function returned, and its cost; an invalid answer is unanswered but still paid."""
    usage = NOTHING
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Usage):
        returned, usage = returned
        counts = (usage.prompt, usage.output, usage.cached, usage.reasoning)
        if any(not isinstance(one, int) or isinstance(one, bool) or one < 0 for one in counts):
            return Unanswered(short_reason(f"malformed: cost {usage!r}")), NOTHING
    answer: Answer | None
    if isinstance(ask, Pairing):
        answer, wanted = _verdict(returned), "'A', 'B', 'TIE' or a Verdict with ratings from 1 to 10"
    elif isinstance(ask, Solo):
        value = returned.value if isinstance(returned, Rating) else returned
        answer, wanted = (Rating(float(value)) if _is_rating(value) else None), "a rating from 1 to 10"
    else:
        answer, wanted = _picked(ask, returned), f"an index from 0 to {len(ask.entrants) - 1}"
    if answer is None:
        return Unanswered(
            short_reason(f"malformed: returned {short_repr(returned, 60)}, not {wanted}")
        ), usage
    return answer, usage


def _verdict(returned: Any) -> Verdict | None:
    if isinstance(returned, Verdict):
        return returned if _is_rating(returned.a) and _is_rating(returned.b) else None
    word = returned.strip().upper() if isinstance(returned, str) else ""
    return verdict_of(word, "HIGH") if word in ("A", "B", "TIE") else None


def _picked(ask: Group, returned: Any) -> Pick | None:
    if not isinstance(returned, int) or isinstance(returned, bool) or not 0 <= returned < len(ask.entrants):
        return None
    return Pick(ask.entrants[returned])


def _is_rating(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and 1 <= value <= 10
    )


def _plain(ask: Ask, answer: Answer) -> Any:
    """An answer as JSON values for the journal."""
    if isinstance(answer, Verdict):
        return [answer.a, answer.b]
    if isinstance(answer, Rating):
        return answer.value
    return ask.entrants.index(answer.winner) if isinstance(answer, Pick) else None


def _attempt(answer: Answer, usage: Usage, key: str | None, latency: float, *, replayed: bool) -> Attempt:
    cause = answer.reason if isinstance(answer, Unanswered) else None
    how = LOST if cause is not None else "callable"
    return Attempt(key or "", usage, "", how, cause, latency, replayed=replayed, requests=1)


def _kind(ask: Ask) -> AskKind:
    return "pair" if isinstance(ask, Pairing) else "rating" if isinstance(ask, Solo) else "pick"


def _name(judge: object) -> str:
    return getattr(judge, "__qualname__", None) or type(judge).__qualname__
