import asyncio
import json

from caps import Candidate, Case, Problem
from caps_agents.patch_finder import PatchFinder
from caps_agents.run_finder import RunFinder
from small_repositories import case_row
from support.sandboxing import needs_bubblewrap


def run(*messages):
    return json.dumps([{"role": role, "content": text} for role, text in messages])


def find(finder, *candidates, **extra):
    async def play():
        try:
            return await finder.find(Case("1", Problem.of("p"), candidates, "trajectory", extra=extra))
        finally:
            await finder.close()

    return asyncio.run(play())


def test_a_run_that_was_cut_off_is_marked():
    calling = json.dumps(
        [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"function": {"name": "bash", "arguments": "ls"}}],
            }
        ]
    )
    found = find(
        RunFinder(),
        Candidate(
            run(("assistant", "x"), ("tool", "Traceback (most recent call last)"), ("assistant", "Done."))
        ),
        Candidate(calling),
        Candidate(run(("assistant", "x"), ("exit", "LimitsExceeded"))),
        Candidate("What?"),
    )
    assert [one.parses for one in found] == [True, False, False, False]
    assert found[0].note == "ended by itself; 1 result with errors"
    assert find(RunFinder(), Candidate("What?")) == []


@needs_bubblewrap
def test_final_diffs_are_tried_out_where_a_repository_is_named(tmp_path):
    row, truths = case_row(5, tmp_path)
    pairs = [
        (one["text"], truth)
        for one, truth in zip(row["candidates"], truths, strict=True)
        if truth.kind in ("right", "wrong")
    ]
    candidates = [Candidate(run(("assistant", "Done.")), answer=text) for text, _ in pairs]
    found = find(
        RunFinder(PatchFinder("auto", str(tmp_path))),
        *candidates,
        repository=row["repository"],
        test_command=row["test_command"],
    )
    assert [one.passed == one.examples for one in found] == [truth.right for _, truth in pairs]
