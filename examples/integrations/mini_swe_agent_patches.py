"""mini-swe-agent: four runs on one task, each in a copy of the repository; the best patch is kept.

MODEL=openai/gpt-4o-mini CAPS_MODEL=... CAPS_BASE_URL=... python mini_swe_agent_patches.py
"""

import os
import subprocess
import tempfile
from pathlib import Path

from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_textbased_model import LitellmTextbasedModel

from caps.integrations.agents import best_patch

SYSTEM = "Reply with exactly one command: ```mswea_bash_command\nthe command\n```"
SUBMIT = "Submit by printing COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT and then git diff."
TASK = f"Fix calc.py: product() should return 17 * 23. {SUBMIT}"


def make_agent(number: int) -> DefaultAgent:
    """An agent in a repository of its own."""
    folder = tempfile.mkdtemp(prefix=f"run-{number}-")
    Path(folder, "calc.py").write_text("def product():\n    return 0\n")
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"],
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)  # noqa: S603, S607
    model = LitellmTextbasedModel(model_name=os.environ["MODEL"], cost_tracking="ignore_errors")
    environment = LocalEnvironment(cwd=folder)
    return DefaultAgent(
        model, environment, system_template=SYSTEM, instance_template="{{task}}", step_limit=5
    )


if __name__ == "__main__":
    best = best_patch(TASK, make_agent, n=4)
    print(f"run {best.number} of {len(best.runs)}:\n{best.patch}")
