"""Rewards for reinforcement learning from a judge: a group of completions becomes relative rewards.

GRPO compares the completions of a prompt with one another, so what it needs is how good each is among them.
`GroupRewards` asks a judge about the pairs that are worth asking and returns a number for each completion:

    reward = GroupRewards(model="qwen3-14b", base_url="http://localhost:8000/v1")
    trainer = GRPOTrainer(..., reward_funcs=reward)          # TRL calls reward(prompts, completions, ...)

Equal completions get equal rewards and are judged once; how often one occurs does not change how good it is.
The rewards of a group have the mean 0. A group without anything to compare has rewards of 0, and so no
gradient. `GatheredRewards` is for trainers that hand over one completion at a time, as verl and OpenRLHF do.
"""

import asyncio
import json
import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from hashlib import sha256
from statistics import fmean, pstdev
from typing import Any, Literal, NamedTuple, TypeAlias, Unpack

from caps.api import ManyOptions, Selected, select_many, select_many_sync
from caps.core.errors import CapsError, ModelError, SettingError
from caps.results import failed

Text: TypeAlias = str | Sequence[Mapping[str, Any]]
Scale: TypeAlias = Literal["score", "rank"]
#: Votes would reward what most completions say, and so what the policy says already.
NO_VOTES: Mapping[str, object] = {"votes": 0}
_log = logging.getLogger(__name__)


class RewardError(CapsError):
    """A group could not be judged; what was paid before is in the journal, if there is one."""


@dataclass(frozen=True, slots=True)
class StepCosts:
    """What the rewards of one step took: one call of the reward function.

    `all_pairs` is the number of judge calls if every pair of distinct completions were compared once.
    """

    step: int
    groups: int
    completions: int
    distinct: int
    judge_calls: int
    all_pairs: int
    input_tokens: int
    output_tokens: int
    usd: float | None
    failed_groups: int
    reward_std: float

    def metrics(self) -> dict[str, float]:
        """The numbers under the names by which a trainer logs them."""
        figures = {
            "judge_calls": self.judge_calls,
            "judge_calls_of_all_pairs": self.judge_calls / self.all_pairs if self.all_pairs else 0.0,
            "distinct_completions": self.distinct / self.completions if self.completions else 0.0,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "failed_groups": self.failed_groups,
            "usd": self.usd,
        }
        return {f"caps/{name}": float(value) for name, value in figures.items() if value is not None}


@dataclass(frozen=True, slots=True)
class _Group:
    """The completions of one prompt: their places in the batch, and which distinct text each is."""

    case: dict[str, Any]
    places: tuple[int, ...]
    text_of: tuple[int, ...]

    @property
    def distinct(self) -> int:
        return max(self.text_of) + 1


class GroupRewards:
    """A reward function for groups of completions, as TRL calls it; `compute` is async.

    `scale`: `score` is what the strategy scores (a probability or a win rate), `rank` are evenly spaced ranks
    from -1 to 1, where equal scores share a rank. `standardise` divides by the standard deviation of the
    group. `group_size` splits a batch into groups of that size; without it, completions of equal prompts are
    a group. `on_failure`: `raise` a `RewardError`, or let a group that cannot be judged have the reward 0.
    `log` is called after each step with its costs; `steps` has those of all steps.
    """

    __name__ = "caps"  # trainers name a reward by it

    def __init__(
        self,
        *,
        scale: Scale = "score",
        standardise: bool = False,
        group_size: int | None = None,
        on_failure: Literal["raise", "zero"] = "raise",
        log: Callable[[StepCosts], object] | None = None,
        **options: Unpack[ManyOptions],
    ) -> None:
        if scale not in ("score", "rank"):
            raise SettingError(f"scale = {scale!r}: must be 'score' or 'rank'")
        if on_failure not in ("raise", "zero"):
            raise SettingError(f"on_failure = {on_failure!r}: must be 'raise' or 'zero'")
        if group_size is not None and (isinstance(group_size, bool) or group_size < 1):
            raise SettingError(f"group_size = {group_size!r}: must be a whole number of at least 1")
        self._scale, self._standardise, self._group_size = scale, standardise, group_size
        self._on_failure, self._log = on_failure, log
        if "strategy" not in options:
            options["strategy"] = "posterior"
            options["settings"] = {**NO_VOTES, **(options.get("settings") or {})}
        self._options = options
        self.steps: list[StepCosts] = []

    def __call__(
        self,
        prompts: Sequence[Text],
        completions: Sequence[Text],
        log_metric: Callable[[str, float], object] | None = None,
        **columns: object,  # noqa: ARG002  (of the dataset)
    ) -> list[float]:
        """The rewards of a batch, in its order; conversational or plain prompts and completions."""
        groups, cases = self._grouped(prompts, completions)
        try:
            results = select_many_sync(cases, **self._options)
        except ModelError as error:
            results = _all_failed(cases, error)
        return self._finish(len(completions), groups, results, log_metric)

    async def compute(
        self,
        prompts: Sequence[Text],
        completions: Sequence[Text],
        log_metric: Callable[[str, float], object] | None = None,
        **columns: object,  # noqa: ARG002
    ) -> list[float]:
        """The same for code that is async; TRL also takes this method as a reward function."""
        groups, cases = self._grouped(prompts, completions)
        try:
            results = await select_many(cases, **self._options)
        except ModelError as error:
            results = _all_failed(cases, error)
        return self._finish(len(completions), groups, results, log_metric)

    def _grouped(
        self, prompts: Sequence[Text], completions: Sequence[Text]
    ) -> tuple[list[_Group], list[dict[str, Any]]]:
        """The groups of a batch, and the cases of those that are judged."""
        if len(prompts) != len(completions):
            raise RewardError(f"{len(prompts)} prompts and {len(completions)} completions: must be as many")
        places: dict[object, list[int]] = {}
        for place, prompt in enumerate(prompts):
            key = place // self._group_size if self._group_size else _key(prompt)
            places.setdefault(key, []).append(place)
        groups = [_group(prompts[members[0]], members, completions) for members in places.values()]
        return groups, [one.case for one in _judged(groups)]

    def _finish(
        self,
        count: int,
        groups: Sequence[_Group],
        results: Sequence[Selected],
        log_metric: Callable[[str, float], object] | None,
    ) -> list[float]:
        rewards, reasons = [0.0] * count, list[str]()
        for group, result in zip(_judged(groups), results, strict=True):
            if result.selection is None:
                reasons.append(result.error or "not judged")
                continue
            values = relative_rewards(
                [float(result.selection.scores.get(one, 0.0)) for one in group.text_of],
                self._scale,
                standardise=self._standardise,
            )
            for place, value in zip(group.places, values, strict=True):
                rewards[place] = value
        self._note(groups, results, rewards, len(reasons), log_metric)
        if reasons:
            message = f"{len(reasons)} of {len(groups)} groups could not be judged: {reasons[0]}"
            if self._on_failure == "raise":
                raise RewardError(message)
            _log.warning("%s; their rewards are 0", message)
        return rewards

    def _note(
        self,
        groups: Sequence[_Group],
        results: Sequence[Selected],
        rewards: Sequence[float],
        failed: int,
        log_metric: Callable[[str, float], object] | None,
    ) -> None:
        totals = [one.ledger.total() for one in results]
        spreads = [pstdev([rewards[place] for place in group.places]) for group in groups]
        costs = [one.usd for one in results if one.usd is not None]
        step = StepCosts(
            step=len(self.steps),
            groups=len(groups),
            completions=len(rewards),
            distinct=sum(one.distinct for one in groups),
            judge_calls=sum(one.calls for one in totals),
            all_pairs=sum(math.comb(one.distinct, 2) for one in groups),
            input_tokens=sum(one.billed for one in totals),
            output_tokens=sum(one.output for one in totals),
            usd=sum(costs) if costs and len(costs) == len(results) else None,
            failed_groups=failed,
            reward_std=fmean(spreads) if spreads else 0.0,
        )
        self.steps.append(step)
        _log.info("caps rewards: %s", step)
        if self._log is not None:
            self._log(step)
        if log_metric is not None:
            for name, value in step.metrics().items():
                log_metric(name, value)


def _group(prompt: Text, places: Sequence[int], completions: Sequence[Text]) -> _Group:
    texts: dict[str, int] = {}
    for place in places:
        texts.setdefault(completion_text(completions[place]).strip(), len(texts))
    case: dict[str, Any] = {"problem": _problem(prompt), "candidates": list(texts)}
    case["id"] = sha256(json.dumps([case["problem"], sorted(texts)]).encode()).hexdigest()[:16]
    chosen = tuple(texts[completion_text(completions[place]).strip()] for place in places)
    return _Group(case, tuple(places), chosen)


def relative_rewards(
    scores: Sequence[float], scale: Scale = "score", *, standardise: bool = False
) -> list[float]:
    """Scores as rewards with the mean 0: equal scores have equal rewards, and the order is kept."""
    values = _ranks(scores) if scale == "rank" else list(scores)
    mean = fmean(values) if values else 0.0
    values = [value - mean for value in values]
    if all(value == scores[0] for value in scores):
        return [0.0] * len(values)  # exactly, whatever the rounding of the mean
    spread = pstdev(values) if standardise else 1.0
    return [value / spread for value in values] if spread > 0 else values


def _ranks(scores: Sequence[float]) -> list[float]:
    """The ranks from -1 to 1; equal scores share the mean of theirs."""
    most = max(1, len(scores) - 1)
    return [
        (sum(other < score for other in scores) - sum(other > score for other in scores)) / most
        for score in scores
    ]


def _all_failed(cases: Sequence[Mapping[str, Any]], error: ModelError) -> list[Selected]:
    """The results if the endpoint cannot be used at all."""
    return [failed(one["id"], str(error)) for one in cases]


def _judged(groups: Iterable[_Group]) -> list[_Group]:
    """The groups in which there is something to compare."""
    return [one for one in groups if one.distinct > 1]


def _key(prompt: Text) -> str:
    return prompt if isinstance(prompt, str) else json.dumps(_problem(prompt))


def _problem(prompt: Text) -> Any:
    if isinstance(prompt, str):
        return prompt
    return [{"role": str(one.get("role", "user")), "content": _content(one)} for one in prompt]


def completion_text(completion: Text) -> str:
    """The text of a completion: as it is, or what the messages of a conversation say."""
    if isinstance(completion, str):
        return completion
    return "\n\n".join(_content(one) for one in completion)


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else ()
    return "".join(str(one.get("text", "")) for one in parts if isinstance(one, Mapping))


class GatheredRewards:
    """Rewards for trainers that hand over one completion at a time: each waits until its group is complete.

    A group is judged when it has `group_size` completions, or `patience` seconds after the first with those
    that have arrived: a trainer may drop some, or send them to another process.
    """

    def __init__(self, reward: GroupRewards, group_size: int, patience: float = 300.0) -> None:
        if isinstance(group_size, bool) or group_size < 2:
            raise SettingError(f"group_size = {group_size!r}: must be at least 2")
        self._reward, self._size, self._patience = reward, group_size, patience
        self._lock = threading.Lock()
        self._waiting: dict[str, list[_Waiting]] = {}
        self._timers: dict[str, threading.Timer] = {}

    def one(self, prompt: Text, completion: Text) -> float:
        """The reward of a completion, for threads; blocks until its group is judged."""
        return self._add(prompt, completion).result()

    async def compute_one(self, prompt: Text, completion: Text) -> float:
        """The reward of a completion, for code that is async."""
        return await asyncio.wrap_future(self._add(prompt, completion))

    def _add(self, prompt: Text, completion: Text) -> "Future[float]":
        future: Future[float] = Future()
        future.set_running_or_notify_cancel()  # the group is judged even if a caller is cancelled
        key = _key(prompt)
        with self._lock:
            group = self._waiting.setdefault(key, [])
            group.append(_Waiting(prompt, completion, future))
            is_full = len(group) == self._size
            if is_full:
                del self._waiting[key]
                self._timers.pop(key).cancel()
            elif len(group) == 1:
                timer = threading.Timer(self._patience, self._judge_late, (key, group))
                timer.daemon = True
                timer.start()
                self._timers[key] = timer
        if is_full:
            threading.Thread(target=self._judge, args=(group,), daemon=True, name="caps rewards").start()
        return future

    def _judge_late(self, key: str, group: "list[_Waiting]") -> None:
        """Judge a group that is still incomplete."""
        with self._lock:
            if self._waiting.get(key) is not group:
                return
            del self._waiting[key], self._timers[key]
        _log.warning("%d of %d completions came in time; they are judged alone", len(group), self._size)
        self._judge(group)

    def _judge(self, group: "list[_Waiting]") -> None:
        try:
            values = self._reward([item.prompt for item in group], [item.completion for item in group])
        except Exception as error:
            for item in group:
                item.future.set_exception(error)
            return
        for item, value in zip(group, values, strict=True):
            item.future.set_result(value)


class _Waiting(NamedTuple):
    """A completion that waits for its group, and the future of its reward."""

    prompt: Text
    completion: Text
    future: "Future[float]"
