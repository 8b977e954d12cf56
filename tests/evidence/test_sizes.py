"""Views that fit the context of a judge, whatever the size of a candidate."""

import asyncio

from caps.config import RunConfig
from caps.core.types import Case, Group, Level, Pairing
from caps.datasets.case_files import write_case
from caps.evidence.windows import fit
from caps.judging.llm import JudgeSettings, JudgingModel, LlmJudge
from caps.models.scripted import ScriptedModel
from caps.session.parts import load_templates, make_prepare
from caps.session.resolve import resolve
from caps.session.session import open_session, stated_config
from caps.testing import ScriptedEndpoint
from support.shell import caps_json

LONG = [" ".join(f"word{number}of{which}" for number in range(40_000)) for which in (1, 2, 3)]


def test_what_was_cut_is_said_and_the_end_is_kept():
    text = "a" * 1000 + "end"
    cut = fit(text, 300)
    assert "[...703 of 1,003 characters left out here to fit the context of the judge...]" in cut
    assert cut.endswith("end")
    assert len(cut) < 300 + 100
    assert fit("short", 300) == "short"


def prompt_tokens(prepare, case, ask):
    model = JudgingModel(ScriptedModel([]), "m")
    judge = LlmJudge(model, load_templates(), JudgeSettings())
    prepared = prepare(case)
    return len(judge.request(prepared, ask).messages[0].content) // 3, judge.max_usage(prepared, ask).prompt


def test_prompts_of_candidates_of_100000_tokens_fit_and_budgets_count_what_is_sent():
    case = Case.of("Which one?", LONG)
    whole, _ = prompt_tokens(make_prepare(), case, Pairing(0, 1, Level.FULL))
    assert whole > 250_000
    for context in (8_000, 32_000):
        prepare = make_prepare(context=context, reply=2_000)
        sent, most = prompt_tokens(prepare, case, Pairing(0, 1, Level.FULL))
        assert context / 2 < sent <= context - 2_000
        assert most < 12 * context
        group = make_prepare(context=context, reply=2_000, all_at_once=True)
        assert prompt_tokens(group, case, Group((0, 1, 2), Level.FULL))[0] <= context - 2_000


def test_a_reply_longer_than_the_context_and_a_long_problem_leave_some_room():
    prepare = make_prepare(context=1_000, reply=100_000)
    assert prepare.room(Case.of("x" * 100_000, LONG)) == 1_000


def test_the_context_is_what_is_stated_or_what_the_server_says():
    async def context_at(server, **settings):
        config = RunConfig(
            base_url=server.url, model="stub", confidence="verbal", hard_evidence="off", **settings
        )
        resolved = resolve(config)
        async with open_session(resolved) as session:
            prepare = resolved.preparation(findings=False, context=session.learned.context)
            return prepare.context, stated_config(resolved, session.learned).context_tokens

    with ScriptedEndpoint(context=20_000) as server:
        assert asyncio.run(context_at(server)) == (20_000, 20_000)
        assert asyncio.run(context_at(server, context_tokens=9_000)) == (9_000, 9_000)
    with ScriptedEndpoint() as server:
        assert asyncio.run(context_at(server)) == (None, None)


def test_a_plan_counts_the_views_as_they_are_cut(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_bytes(write_case(Case.of("Which one?", LONG)) + b"\n")
    rows = [
        caps_json("plan", path, "--strategy", "v1-infer", *more)
        for more in ([], ["--context-tokens", "16000"])
    ]
    whole, cut = (row[0]["tokens"]["mean"] for row in rows)
    assert cut < whole / 10
