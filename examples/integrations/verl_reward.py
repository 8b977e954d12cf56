"""verl and OpenRLHF: the file that names the reward function.

verl, reward loop: reward.custom_reward_function.path=.../verl_reward.py reward.num_workers=1
OpenRLHF: --remote_rm_url .../verl_reward.py
The judge comes from the environment of the processes that compute rewards: CAPS_MODEL, CAPS_BASE_URL.
"""

import logging

from caps.integrations.rewards import GroupRewards, openrlhf_reward, verl_loop_reward

SAMPLES = 8  # of a prompt: rollout.n of verl, --n_samples_per_prompt of OpenRLHF

logging.basicConfig(level=logging.INFO)  # a line for each group: calls, tokens, dollars
rewards = GroupRewards(scale="rank", on_failure="zero")
compute_score = verl_loop_reward(rewards, group_size=SAMPLES)  # verl looks for this name
reward_func = openrlhf_reward(rewards, group_size=SAMPLES)  # OpenRLHF for this one
