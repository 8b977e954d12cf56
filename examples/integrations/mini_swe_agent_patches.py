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

import caps

SYSTEM = "Reply with exactly one command: ```mswea_bash_command\nthe command\n```"
SUBMIT = "Submit by printing COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT and then git diff."
TASK = f"Fix calc.py: product() should return 17 * 23. {SUBMIT}"


def write_patch(number: int) -> str:
    """The patch that an agent submits, in a repository of its own; empty if it submits none."""
    folder = tempfile.mkdtemp(prefix=f"run-{number}-")
    Path(folder, "calc.py").write_text("def product():\n    return 0\n")
    for words in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -qm a"):
        subprocess.run(["git", *words.split()], cwd=folder, check=True)  # noqa: S603, S607
    model = LitellmTextbasedModel(model_name=os.environ["MODEL"], cost_tracking="ignore_errors")
    agent = DefaultAgent(
        model,
        LocalEnvironment(cwd=folder),
        system_template=SYSTEM,
        instance_template="{{task}}",
        step_limit=5,
    )
    return str(agent.run(TASK).get("submission", ""))


if __name__ == "__main__":
    patches = [patch for patch in map(write_patch, range(4)) if patch]
    print(caps.best_sync(TASK, patches, domain="patch").text)
