"""verl and OpenRLHF: the file that names the reward function.

verl, reward loop: reward.custom_reward_function.path=.../verl_reward.py reward.num_workers=1
verl, batch reward manager: the same with reward_manager=batch and custom_reward_function.name=compute_scores
OpenRLHF: --remote_rm_url .../verl_reward.py
The judge comes from the environment of the processes that compute rewards: CAPS_MODEL, CAPS_BASE_URL.
"""

import logging

from caps.integrations.rewards import GatheredRewards, GroupRewards, RewardError

SAMPLES = 8  # of a prompt: rollout.n of verl, --n_samples_per_prompt of OpenRLHF

logging.basicConfig(level=logging.INFO)  # a line for each group: calls, tokens, dollars
rewards = GroupRewards(scale="rank", on_failure="zero")
gathered = GatheredRewards(rewards, SAMPLES)


def prompt_of(info):
    """verl does not pass the prompt on: put it into `extra_info` where you prepare the data."""
    for name in ("prompt", "question", "raw_prompt"):
        if (info or {}).get(name):
            return info[name]
    raise RewardError(f"extra_info has no 'prompt' or 'question' (index {(info or {}).get('index')!r})")


async def compute_score(data_source, solution_str, ground_truth, extra_info=None, **more):
    """The reward loop of verl hands over one completion at a time."""
    return {"score": await gathered.compute_one(prompt_of(extra_info), solution_str)}


def compute_scores(data_sources, solution_strs, ground_truths, extra_infos, **more):
    """The batch reward manager of verl hands over whole batches."""
    return [{"score": value} for value in rewards(list(map(prompt_of, extra_infos)), list(solution_strs))]


def reward_func(queries, prompts, labels=None, **more):
    """OpenRLHF 0.11 hands over one completion at a time, in threads; earlier versions hand over batches."""
    import torch  # noqa: PLC0415

    completions = [query.removeprefix(prompt) for query, prompt in zip(queries, prompts, strict=True)]
    if len(completions) == 1:
        values = [gathered.one(prompts[0], completions[0])]
    else:
        values = rewards(list(prompts), completions)
    logs = rewards.steps[-1].metrics().items()
    return {
        "rewards": torch.tensor(values, dtype=torch.float32),
        "scores": torch.tensor([min(1.0, max(0.0, (x + 1) / 2)) for x in values], dtype=torch.float32),
        "extra_logs": {name: torch.tensor([x] * len(values), dtype=torch.float32) for name, x in logs},
    }
