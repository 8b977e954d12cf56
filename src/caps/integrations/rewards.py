"""Rewards for reinforcement learning from a judge: a group of completions becomes relative rewards.

GRPO compares the completions of a prompt with one another, so what it needs is how good each is among them.
`GroupRewards` asks a judge about the pairs that are worth asking and returns a number for each completion:

    reward = GroupRewards(model="qwen3-14b", base_url="http://localhost:8000/v1")
    trainer = GRPOTrainer(..., reward_funcs=reward)          # TRL calls reward(prompts, completions, ...)

Equal completions get equal rewards and are judged once; how often one occurs does not change how good it is.
The rewards of a group have the mean 0. A group without anything to compare has rewards of 0, and so no
gradient. `verl_reward`, `verl_loop_reward` and `openrlhf_reward` have the signatures of those trainers.
"""

import asyncio
import json
import logging
import math
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from statistics import fmean, pstdev
from typing import Any, Literal, TypeAlias, Unpack

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
        found = {
            "judge_calls": self.judge_calls,
            "judge_calls_of_all_pairs": self.judge_calls / self.all_pairs if self.all_pairs else 0.0,
            "distinct_completions": self.distinct / self.completions if self.completions else 0.0,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "failed_groups": self.failed_groups,
            "usd": self.usd,
        }
        return {f"caps/{name}": float(value) for name, value in found.items() if value is not None}


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
            known = place // self._group_size if self._group_size else _key(prompt)
            places.setdefault(known, []).append(place)
        groups = [self._group(prompts[found[0]], found, completions) for found in places.values()]
        return groups, [one.case for one in _judged(groups)]

    def _group(self, prompt: Text, places: Sequence[int], completions: Sequence[Text]) -> _Group:
        texts: dict[str, int] = {}
        for place in places:
            texts.setdefault(completion_text(completions[place]).strip(), len(texts))
        case: dict[str, Any] = {"problem": _problem(prompt), "candidates": list(texts)}
        case["id"] = sha256(json.dumps([case["problem"], sorted(texts)]).encode()).hexdigest()[:16]
        chosen = tuple(texts[completion_text(completions[place]).strip()] for place in places)
        return _Group(case, tuple(places), chosen)

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
        known = [one.usd for one in results if one.usd is not None]
        costs = StepCosts(
            step=len(self.steps),
            groups=len(groups),
            completions=len(rewards),
            distinct=sum(one.distinct for one in groups),
            judge_calls=sum(one.calls for one in totals),
            all_pairs=sum(math.comb(one.distinct, 2) for one in groups),
            input_tokens=sum(one.billed for one in totals),
            output_tokens=sum(one.output for one in totals),
            usd=sum(known) if known and len(known) == len(results) else None,
            failed_groups=failed,
            reward_std=fmean(pstdev([rewards[place] for place in one.places]) for one in groups)
            if groups
            else 0.0,
        )
        self.steps.append(costs)
        _log.info("caps rewards: %s", costs)
        if self._log is not None:
            self._log(costs)
        if log_metric is not None:
            for name, value in costs.metrics().items():
                log_metric(name, value)


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
    found = [0.0] * len(scores)
    passed = 0
    by_score = sorted(range(len(scores)), key=lambda one: scores[one])
    for _, equal in groupby(by_score, key=lambda one: scores[one]):
        members = list(equal)
        middle = passed + (len(members) - 1) / 2
        for one in members:
            found[one] = 2 * middle / (len(scores) - 1) - 1 if len(scores) > 1 else 0.0
        passed += len(members)
    return found


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
    """Rewards for trainers that hand over one completion at a time: each waits until its group is there.

    A group is judged when it has `group_size` completions, or with those that came within `patience` seconds
    of the first to wait, since a trainer may drop some or send them to another process.
    """

    def __init__(self, reward: GroupRewards, group_size: int, patience: float = 300.0) -> None:
        if isinstance(group_size, bool) or group_size < 2:
            raise SettingError(f"group_size = {group_size!r}: must be at least 2")
        self._reward, self._size, self._patience = reward, group_size, patience
        self._lock = threading.Lock()
        self._waiting: dict[str, list[tuple[Text, Text, Future[float]]]] = {}

    def one(self, prompt: Text, completion: Text) -> float:
        """The reward of a completion, for threads; blocks until its group is judged."""
        future = self._add(prompt, completion)
        try:
            return future.result(self._patience)
        except TimeoutError:
            self._judge(self._take(_key(prompt), future))
            return future.result()

    async def compute_one(self, prompt: Text, completion: Text) -> float:
        """The same for code that is async."""
        future = self._add(prompt, completion)
        waiting = asyncio.wrap_future(future)
        done, _ = await asyncio.wait([waiting], timeout=self._patience)
        if not done:
            self._start(self._take(_key(prompt), future))
        return await waiting

    def _add(self, prompt: Text, completion: Text) -> "Future[float]":
        future: Future[float] = Future()
        future.set_running_or_notify_cancel()  # it is not cancelled with one of those who wait
        with self._lock:
            group = self._waiting.setdefault(_key(prompt), [])
            group.append((prompt, completion, future))
            full = self._waiting.pop(_key(prompt)) if len(group) == self._size else []
        self._start(full)
        return future

    def _take(self, key: str, future: "Future[float]") -> list[tuple[Text, Text, "Future[float]"]]:
        """The group of a future, unless it is being judged already."""
        with self._lock:
            if all(one is not future for _, _, one in self._waiting.get(key, ())):
                return []
            group = self._waiting.pop(key)
        _log.warning("%d of %d completions came in time; they are judged alone", len(group), self._size)
        return group

    def _start(self, group: list[tuple[Text, Text, "Future[float]"]]) -> None:
        if group:
            threading.Thread(target=self._judge, args=(group,), daemon=True, name="caps rewards").start()

    def _judge(self, group: list[tuple[Text, Text, "Future[float]"]]) -> None:
        if not group:
            return
        prompts, completions, futures = zip(*group, strict=True)
        try:
            values = self._reward(prompts, completions)
        except Exception as error:
            for future in futures:
                future.set_exception(error)
            return
        for future, value in zip(futures, values, strict=True):
            future.set_result(value)


def verl_reward(reward: GroupRewards) -> Callable[..., list[dict[str, float]]]:
    """`compute_score` for the batch reward manager of verl (`reward_manager=batch`), which has whole batches.

    The judge reads the prompt, which verl does not pass on: it is read from `extra_info`, from the field
    `prompt`, `question` or `raw_prompt`.
    """

    def compute_score(
        data_sources: Sequence[str],  # noqa: ARG001
        solution_strs: Sequence[str],
        ground_truths: Sequence[object],  # noqa: ARG001
        extra_infos: Sequence[Mapping[str, Any] | None],
        **more: object,  # noqa: ARG001
    ) -> list[dict[str, float]]:
        prompts = [_verl_prompt(info or {}) for info in extra_infos]
        return [{"score": value} for value in reward(prompts, list(solution_strs))]

    return compute_score


def verl_loop_reward(
    reward: GroupRewards, group_size: int, patience: float = 300.0
) -> Callable[..., Coroutine[Any, Any, dict[str, float]]]:
    """`compute_score` for the reward loop of verl, which hands over one completion at a time.

    `group_size` is `actor_rollout_ref.rollout.n`. The completions of a prompt must reach one process: set
    the number of reward workers to 1.
    """
    gathered = GatheredRewards(reward, group_size, patience)

    async def compute_score(
        data_source: str,  # noqa: ARG001
        solution_str: str,
        ground_truth: object,  # noqa: ARG001
        extra_info: Mapping[str, Any] | None = None,
        **more: object,  # noqa: ARG001
    ) -> dict[str, float]:
        return {"score": await gathered.compute_one(_verl_prompt(extra_info or {}), solution_str)}

    return compute_score


def _verl_prompt(info: Mapping[str, Any]) -> Text:
    for name in ("prompt", "question", "raw_prompt"):
        value = info.get(name)
        if isinstance(value, str) or (isinstance(value, Sequence) and value):
            return value
    raise RewardError(
        "extra_info has no 'prompt' or 'question', which the judge must read: add it where you prepare the "
        f"data (index {info.get('index')!r})"
    )


def openrlhf_reward(
    reward: GroupRewards, group_size: int | None = None, patience: float = 300.0
) -> Callable[..., dict[str, Any]]:
    """`reward_func` of the file that OpenRLHF takes as `--remote_rm_url FILE.py`.

    OpenRLHF 0.11 hands over one completion at a time, from a pool of threads: then give `group_size`, its
    `--n_samples_per_prompt`, and each waits for its group. Earlier versions hand over batches.
    """
    gathered = None if group_size is None else GatheredRewards(reward, group_size, patience)

    def reward_func(
        queries: Sequence[str],
        prompts: Sequence[str],
        labels: Sequence[object] | None = None,  # noqa: ARG001
        **more: object,  # noqa: ARG001
    ) -> dict[str, Any]:
        import torch  # noqa: PLC0415  (OpenRLHF needs tensors, nothing else here does)

        completions = [
            query[len(prompt) :] if query.startswith(prompt) else query
            for query, prompt in zip(queries, prompts, strict=True)
        ]
        if len(completions) > 1:
            found = reward(list(prompts), completions)
        elif gathered is None:
            raise RewardError(
                "one completion alone has no relative reward: give openrlhf_reward a group_size"
            )
        else:
            found = [gathered.one(prompts[0], completions[0])]
        rewards = torch.tensor(found, dtype=torch.float32)
        scores = torch.tensor([min(1.0, max(0.0, (value + 1) / 2)) for value in found], dtype=torch.float32)
        logs = {
            name: torch.tensor([number] * len(found), dtype=torch.float32)
            for name, number in reward.steps[-1].metrics().items()
        }
        return {"rewards": rewards, "scores": scores, "extra_logs": logs}

    return reward_func
