"""The best patch of several runs of an agent; failed runs are left out, and no patch is lost."""

import pytest

from caps.integrations.agents import PatchError, best_patch

PATCH = "--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n def product():\n-    return 0\n+    return {}\n"


class Fixed:
    def __init__(self, submitted) -> None:
        self.submitted = submitted

    def run(self, task: str):
        if isinstance(self.submitted, Exception):
            raise self.submitted
        return self.submitted


RUNS = [
    {"exit_status": "Submitted", "submission": PATCH.format(1)},
    ("Submitted", PATCH.format(391)),
    "",
    OSError("x"),
]


def prefer_391(problem: str, a: str, b: str) -> str:
    return "A" if "391" in a else "B"


def test_the_best_of_the_patches_is_kept_whatever_form_an_agent_returns() -> None:
    found = best_patch("fix", lambda n: Fixed(RUNS[n]), n=4, at_once=2, judge=prefer_391, journal=None)
    assert (found.number, "391" in found.patch) == (1, True)
    assert found.selected is not None
    assert [bool(one.patch) for one in found.runs] == [True, True, False, False]
    alone = best_patch("fix", lambda n: Fixed(RUNS[n + 1]), n=3)
    assert (alone.number, alone.selected) == (0, None)


def test_without_a_patch_or_a_judge_the_error_has_the_runs() -> None:
    def broken(problem: str, a: str, b: str) -> str:
        raise RuntimeError("out of credit")

    with pytest.raises(PatchError, match="2 runs, and no patch: OSError: x"):
        best_patch("fix", lambda n: Fixed(RUNS[n + 2]), n=2)
    with pytest.raises(PatchError, match="out of credit") as caught:
        best_patch("fix", lambda n: Fixed(RUNS[n]), n=2, judge=broken, journal=None)
    assert "391" in caught.value.runs[1].patch
