"""verl and OpenRLHF: the file that names the reward function.

verl: reward_model.reward_manager=batch custom_reward_function.path=.../verl_reward.py
OpenRLHF: --remote_rm_url .../verl_reward.py
The judge comes from the environment of the processes that compute rewards: CAPS_MODEL, CAPS_BASE_URL.
"""

import logging

from caps.integrations.rewards import GroupRewards, openrlhf_reward, verl_reward

logging.basicConfig(level=logging.INFO)  # a line for each step: calls, tokens, dollars
rewards = GroupRewards(scale="rank", on_failure="zero")
compute_score = verl_reward(rewards)  # verl looks for this name
reward_func = openrlhf_reward(rewards)  # OpenRLHF for this one
