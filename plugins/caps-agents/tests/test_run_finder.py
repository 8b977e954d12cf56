import asyncio
import json

from caps import Candidate, Case, Problem
from caps_agents.patch_finder import PatchFinder
from caps_agents.run_finder import RunFinder
from small_repositories import case_row
from support.closing import closing
from support.sandboxing import needs_bubblewrap


def run(*messages):
    return json.dumps([{"role": role, "content": text} for role, text in messages])


def find(finder, *candidates, **extra):
    async def play():
        async with closing(finder):
            return await finder.find(Case("1", Problem.of("p"), candidates, "trajectory", extra=extra))

    return asyncio.run(play())


def test_a_run_that_was_cut_off_is_marked():
    call = {"function": {"name": "bash", "arguments": "ls"}}
    texts = (
        run(("assistant", "x"), ("tool", "Traceback (most recent call last)"), ("assistant", "Done.")),
        json.dumps([{"role": "assistant", "content": "", "tool_calls": [call]}]),
        run(("assistant", "x"), ("exit", "LimitsExceeded")),
        "What?",
    )
    findings = find(RunFinder(), *map(Candidate, texts))
    assert [finding.parses for finding in findings] == [True, False, False, False]
    assert findings[0].note == "ended by itself; 1 result with errors"
    assert find(RunFinder(), Candidate("What?")) == []


@needs_bubblewrap
def test_final_diffs_are_tried_out_where_a_repository_is_named(tmp_path):
    row, truths = case_row(5, tmp_path)
    candidates = [Candidate(run(("assistant", "Done.")), answer=patch["text"]) for patch in row["candidates"]]
    named = {field: row[field] for field in ("repository", "test_command")}
    findings = find(RunFinder(PatchFinder("auto", str(tmp_path))), *candidates, **named)
    assert [finding.passed == finding.examples for finding in findings] == [truth.right for truth in truths]
