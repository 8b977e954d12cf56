"""The domains `patch` and `trajectory`, and the folder of the repositories that their cases may name.

The folder is the environment variable `CAPS_REPOSITORIES`, or in Python an argument:

    caps.register_domain(caps_agents.patches_in("repositories"))

Without it nothing that a case names is read or run: a case file could name any folder of this machine, and
its files would be shown to a judge.
"""

import os
from dataclasses import replace
from functools import partial

from caps import Case, Domain, Resources
from caps_agents import prompts
from caps_agents.patch_finder import PatchFinder
from caps_agents.repositories import DIGEST, FIELDS, digest_of
from caps_agents.run_finder import RunFinder

VARIABLE = "CAPS_REPOSITORIES"


def patches_in(repositories: str | None = None) -> Domain:
    """The domain of patches, whose cases may name repositories in this folder."""
    return Domain(
        name="patch",
        about="patches: applied and tested on a copy",
        signature="caps_agents.patches:patch_signature",
        partial="caps_agents.patches:patch_summary",
        full="caps_agents.patches:patch_full",
        templates=prompts.PATCHES,
        finder=partial(_patch_finder, repositories),
        fields=(*FIELDS, DIGEST),
        complete=partial(_with_digest, repositories),
        local_fields=FIELDS,
        text_form="patch",
    )


def runs_in(repositories: str | None = None) -> Domain:
    """The domain of runs of agents, whose cases may name repositories in this folder."""
    return Domain(
        name="trajectory",
        about="runs of agents: how they end",
        signature="caps_agents.runs:final_state",
        partial="caps_agents.runs:run_summary",
        full="caps_agents.runs:run_full",
        templates=prompts.RUNS,
        finder=partial(_run_finder, repositories),
        fields=(*FIELDS, DIGEST),
        complete=partial(_with_digest, repositories),
        local_fields=FIELDS,
        text_form="messages",
    )


def _folder(repositories: str | None) -> str | None:
    return repositories or os.environ.get(VARIABLE) or None


def _patch_finder(repositories: str | None, resources: Resources) -> PatchFinder | None:
    """What tries out patches; nothing where programs may not run."""
    return None if resources.sandbox == "off" else PatchFinder(resources.sandbox, _folder(repositories))


def _run_finder(repositories: str | None, resources: Resources) -> RunFinder:
    """What reads runs, and tries out their diffs where programs may run."""
    return RunFinder(_patch_finder(repositories, resources), resources.texts)


def _with_digest(repositories: str | None, case: Case) -> Case:
    """The case with a digest of its repository, so that findings are kept for these files only."""
    if not case.extra.get("repository"):
        return case
    folder = _folder(repositories)
    digest = None if folder is None else digest_of(folder, case)
    return replace(case, extra={**case.extra, DIGEST: digest})


PATCH = patches_in()
TRAJECTORY = runs_in()
