"""Rewards of groups: relative, equal for equal completions, cheap, and honest about failures."""

import asyncio
import math
import runpy
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caps.integrations.rewards import (
    GatheredRewards,
    GroupRewards,
    RewardError,
    relative_rewards,
)
from caps.testing import ScriptedEndpoint, Status


def longer(problem: str, a: str, b: str) -> str:
    return "TIE" if len(a) == len(b) else "A" if len(a) > len(b) else "B"


def rewards_of(prompts: list, completions: list, **more) -> list[float]:
    return GroupRewards(judge=longer, journal=None, domain="general", **more)(prompts, completions)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(["a", "bb", "ccc", "dddd", "", " bb "]), min_size=1, max_size=7),
    st.sampled_from(["score", "rank"]),
    st.booleans(),
)
def test_equal_completions_have_equal_rewards_of_mean_zero(completions, scale, standardise) -> None:
    found = rewards_of(["p"] * len(completions), completions, scale=scale, standardise=standardise)
    by_text: dict[str, set[float]] = {}
    for text, value in zip(completions, found, strict=True):
        by_text.setdefault(text.strip(), set()).add(value)
    assert all(len(values) == 1 for values in by_text.values())
    assert sum(found) == pytest.approx(0, abs=1e-9)
    assert all(map(math.isfinite, found))
    if len(by_text) == 1:
        assert found == [0.0] * len(completions)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.sampled_from(["score", "rank"]))
def test_relative_rewards_keep_the_order_of_scores(scores, scale) -> None:
    found = relative_rewards(scores, scale)
    for one, mine in zip(scores, found, strict=True):
        for other, its in zip(scores, found, strict=True):
            assert mine == its if one == other else (mine >= its) == (one > other) or mine == its


def test_copies_cost_no_call_and_do_not_change_what_a_completion_is_worth() -> None:
    once, often = (GroupRewards(judge=longer, journal=None, domain="general") for _ in range(2))
    single = once(["p"] * 3, ["a", "bb", "ccc"])
    many = often(["p"] * 7, ["a", "a", "a", "a", "bb", "ccc", "a"])
    assert often.steps[0].judge_calls == once.steps[0].judge_calls
    assert many[4] - many[0] == pytest.approx(single[1] - single[0])
    assert many[5] - many[4] == pytest.approx(single[2] - single[1])


def test_groups_are_kept_apart_and_costs_are_counted_by_step() -> None:
    noted, logged = [], {}
    reward = GroupRewards(judge=longer, journal=None, domain="general", log=noted.append)
    prompts = [[{"role": "user", "content": name}] for name in "pqpqpq"]
    completions = [
        [{"role": "assistant", "content": text}] for text in ("a", "xx", "bbb", "xx", "cccccc", "xx")
    ]
    found = reward(prompts=prompts, completions=completions, log_metric=logged.__setitem__, completion_ids=[])
    assert found[1::2] == [0.0] * 3  # all equal
    assert found[4] > max(found[0], found[2])
    (costs,) = noted
    assert (costs.groups, costs.distinct, costs.all_pairs) == (2, 4, 3)
    assert 0 < costs.judge_calls <= 4
    assert logged["caps/judge_calls"] == costs.judge_calls
    again = asyncio.run(reward.compute(prompts, completions))
    assert again == found
    assert [one.step for one in reward.steps] == [0, 1]


def test_a_group_size_splits_equal_prompts() -> None:
    found = rewards_of(["p"] * 4, ["a", "bbb", "cc", "cc"], group_size=2)
    assert found[2:] == [0.0, 0.0]
    assert found[1] > found[0]


def test_a_failing_judge_is_an_error_with_its_reason_or_a_reward_of_zero(caplog) -> None:
    def broken(problem: str, a: str, b: str) -> str:
        raise RuntimeError("out of credit")

    with pytest.raises(RewardError, match="1 of 1 groups could not be judged: .*out of credit"):
        GroupRewards(judge=broken, journal=None)(["p"] * 2, ["a", "b"])
    lenient = GroupRewards(judge=broken, journal=None, on_failure="zero")
    assert lenient(["p"] * 2, ["a", "b"]) == [0.0, 0.0]
    assert lenient.steps[0].failed_groups == 1
    assert "out of credit" in caplog.text


def test_an_endpoint_that_refuses_everything_fails_the_step() -> None:
    with ScriptedEndpoint([Status(401, {"error": {"message": "bad key"}})], models=("m",)) as stub:
        reward = GroupRewards(model="m", base_url=stub.url, journal=None)
        with pytest.raises(RewardError, match="key"):
            reward(["p"] * 2, ["a", "b"])


@pytest.fixture
def trainers(monkeypatch) -> dict:
    """The file that verl and OpenRLHF name, with a judge of its own and groups of three."""
    functions = runpy.run_path("examples/integrations/verl_reward.py")
    rewards = GroupRewards(judge=longer, journal=None, domain="general", scale="rank")
    shared = functions["prompt_of"].__globals__
    monkeypatch.setitem(shared, "rewards", rewards)
    monkeypatch.setitem(shared, "gathered", GatheredRewards(rewards, 3))
    return functions


def test_verl_gets_rewards_of_whole_batches_and_reads_the_prompt_from_extra_info(trainers) -> None:
    infos = [{"question": "p", "index": 0}] * 3
    found = trainers["compute_scores"](["d"] * 3, ["a", "bbb", "a"], ["1"] * 3, infos)
    assert found[1]["score"] > found[0]["score"] == found[2]["score"]
    with pytest.raises(RewardError, match="extra_info has no 'prompt'"):
        trainers["compute_scores"](["d"], ["a"], ["1"], [{"index": 7}])


def test_completions_handed_over_one_at_a_time_wait_for_their_group(trainers) -> None:
    async def rollouts() -> list[dict[str, float]]:
        asked = [(question, text) for text in ("a", "bbb", "cc") for question in "pq"]
        return await asyncio.gather(
            *(
                trainers["compute_score"]("d", text, "1", extra_info={"question": question})
                for question, text in asked
            )
        )

    found = [one["score"] for one in asyncio.run(rollouts())]
    assert found == [-1.0, -1.0, 1.0, 1.0, 0.0, 0.0]
    rewards = trainers["prompt_of"].__globals__["rewards"]
    assert len(rewards.steps) == 2  # one for each group
    alone = GatheredRewards(rewards, group_size=9, patience=0.0)
    assert alone.one("p", "a") == 0.0  # nothing came in time to compare it with


def test_openrlhf_gets_tensors_of_the_completions_alone(trainers, monkeypatch) -> None:
    class Tensors:  # the parts of torch that are used
        float32 = "float32"
        tensor = staticmethod(lambda values, dtype: list(values) if dtype else [])

    monkeypatch.setitem(sys.modules, "torch", Tensors)
    found = trainers["reward_func"](["p a", "p bbb"], ["p ", "p "], ["", ""])
    assert found["rewards"] == [-1.0, 1.0]
    assert found["scores"] == [0.0, 1.0]
    assert found["extra_logs"]["caps/judge_calls"] == [2.0, 2.0]  # both orders
    with ThreadPoolExecutor(3) as pool:
        asked = [
            pool.submit(trainers["reward_func"], [f"p {text}"], ["p "], [""]) for text in ("a", "bbb", "cc")
        ]
        assert [one.result()["rewards"] for one in asked] == [[-1.0], [1.0], [0.0]]
