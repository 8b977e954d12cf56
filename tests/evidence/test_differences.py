"""Pair views: what separates two programs, shown in place of their partial views."""

import asyncio
from dataclasses import replace

import pytest

from caps.core.contest import Contest
from caps.core.domains import Domain
from caps.core.errors import SettingError
from caps.core.types import Candidate, Case, Found, Level, Pairing, Problem, Run, Solo, Verdict, shown_size
from caps.evidence.domains import register_domain
from caps.evidence.profiles import profile_named, with_views
from caps.evidence.views import LONGEST_SHOWN, MAX_LINES, code_difference
from caps.judging.llm import JudgingModel, LlmJudge
from caps.judging.preparation import PromptSizes
from caps.models.scripted import ScriptedModel
from caps.session.parts import load_templates, make_prepare, make_strategy
from caps.studies.planning import forecast_case

ADD = "I add.\n```python\nimport sys\n\ndef f(a, b):\n    total = a + b\n    return total\n```"
MULTIPLY = "I multiply.\n```python\ndef f(a, b):\n    total = a * b\n    return total\n```"
DIVIDE = "I divide.\n```python\ndef f(a, b):\n    return a / b\n```"
PARTIAL, FULL = Pairing(0, 1, Level.PARTIAL), Pairing(0, 1, Level.FULL)


def ran(*results, inputs=("f(2, 2)", "f(0, 3)", "f(10, 20)")):
    runs = zip(inputs, results, strict=False)
    return Found(
        parses=True,
        runs=tuple(
            Run(text, "call", "crashed", result, "")
            if "Error" in result
            else Run(text, "call", "ok", result, result)
            for text, result in runs
        ),
    )


def case_of(*founds, texts=(ADD, MULTIPLY, DIVIDE)):
    candidates = (Candidate(text, found=found) for text, found in zip(texts, founds, strict=False))
    return Case("1", Problem.of("Write f."), tuple(candidates), "code")


CASE = case_of(ran("4", "3", "30"), ran("4", "0", "200"), ran("1", "ZeroDivisionError: x", "0.5"))


def shown(case, ask=PARTIAL, **settings):
    return make_prepare(differences=True, **settings)(case).evidence.shown(ask)


def test_a_pair_is_shown_by_its_shortest_separating_input_and_its_own_lines():
    first, second = shown(CASE)
    assert first.startswith("Call 1:\n| f(0, 3)\nOutput 1:\n| 3\n\nCall 2:\n| f(10, 20)\nOutput 2:\n| 30\n\n")
    assert first.endswith("Lines that only this program has:\n|     total = a + b")
    assert "| 0\n" in second
    assert "f(2, 2)" not in first + second  # on which they agree
    assert shown(CASE, Pairing(1, 0, Level.PARTIAL)) == (second, first)


def test_a_program_that_failed_is_shown_with_its_error():
    _, third = shown(CASE, Pairing(0, 2, Level.PARTIAL))
    assert "Output 2: none. It failed:\n| ZeroDivisionError: x" in third


@pytest.mark.parametrize(
    "case",
    [
        replace(CASE, candidates=CASE.candidates[:1] * 2),
        case_of(None, None),
        case_of(ran("1"), None),
        case_of(Found(parses=True), Found(parses=True)),
    ],
    ids=["alike", "no findings", "one unknown", "no inputs"],
)
def test_pairs_that_no_input_separates_are_shown_by_their_usual_partial_views(case):
    prepared = make_prepare(differences=True)(case)
    assert prepared.evidence.shown(PARTIAL) == make_prepare()(case).evidence.shown(PARTIAL)
    assert not any(one.differences for one in prepared.evidence.entrants)


def test_full_views_ratings_and_single_candidates_are_shown_as_ever():
    plain = make_prepare()(CASE).evidence
    for ask in (FULL, Pairing(0, 1, Level.PARTIAL, dialect="ratings"), Solo(0, Level.PARTIAL)):
        assert shown(CASE, ask) == plain.shown(ask)


def test_another_partial_view_replaces_the_view_of_differences():
    default = shown(CASE)
    assert make_prepare(views={"partial": "code-difference"})(CASE).evidence.shown(PARTIAL) == default
    usual = make_prepare()(CASE).evidence.shown(PARTIAL)
    assert make_prepare()(CASE).evidence.shown(PARTIAL) == usual != default
    assert (
        make_prepare(views={"partial": "code-excerpt"}, differences=True)(CASE).evidence.shown(PARTIAL)
        == usual
    )
    assert make_prepare("code-paper", differences=True)(CASE).evidence.shown(PARTIAL)[0].startswith("I add")
    with pytest.raises(SettingError, match="code-difference"):
        with_views(profile_named("code"), {"full": "code-difference"})


def test_replies_about_other_views_are_found_again_whatever_programs_did():
    judge = LlmJudge(JudgingModel(ScriptedModel(lambda _: ""), "m"), load_templates())
    with_difference, without = make_prepare(differences=True)(CASE), make_prepare()(CASE)
    assert judge.request(with_difference, FULL) == judge.request(without, FULL)
    assert judge.request(with_difference, PARTIAL).template == "pair-difference-code.txt"
    assert judge.request(without, PARTIAL).template == "pair-e1-code.txt"


def test_the_judge_is_asked_which_output_is_right_and_its_verdict_is_read():
    asked = []

    def reply(request):
        asked.append(request.messages[0].content)
        code = asked[-1].partition("A-")[2].partition(",")[0]
        return f"0 + 3 is 3.\n<winner>A-{code}</winner>\n<confidence>HIGH</confidence>"

    judge = LlmJudge(JudgingModel(ScriptedModel(reply), "m"), load_templates())
    prepared = make_prepare(differences=True)(CASE)
    assert asyncio.run(judge.rule(prepared, PARTIAL)).answer == Verdict(9, 3)
    assert "Which output is right for this input?" in asked[0]
    assert judge.shown(prepared, PARTIAL) == list(shown(CASE))
    assert judge.max_usage(prepared, PARTIAL).prompt > len(asked[0]) / 4


def test_forecasts_and_sizes_are_those_of_what_is_shown():
    prepared, templates = make_prepare(differences=True)(CASE), load_templates()
    judge = LlmJudge(JudgingModel(ScriptedModel(lambda _: ""), "m"), templates)
    prompts = PromptSizes(prepared, templates)
    for ask in (PARTIAL, Pairing(2, 0, Level.PARTIAL), FULL):
        (message,) = judge.request(prepared, ask).messages
        assert prompts.size(ask) == len(message.content)
        assert shown_size(prepared.evidence.entrants, ask) == pytest.approx(
            sum(map(len, prepared.evidence.shown(ask))) / 4, abs=2
        )
    strategy = make_strategy("round-robin", {"level": "E1"})
    found = forecast_case(prepared, strategy, templates, seed=7)
    asks = Contest(strategy, prepared.evidence.entrants, seed="7/1").pending.asks
    assert found.first_stage == sum(-(-prompts.size(ask) // 4) for ask in asks)
    assert found.first_stage <= found.mean


def test_long_programs_outputs_and_inputs_are_cut():
    code = "```python\n" + "\n".join(f"x{i} = {'y' * 900}" for i in range(50)) + "\n```"
    long = Run("f(1)", "call", "ok", "9" * 10_000_000, "a")
    found = [Found(runs=(long,)), Found(runs=(replace(long, digest="b"),))]
    first, _ = shown(case_of(*found, texts=(code, ADD)))
    assert first.count("\n| ") == 3 + MAX_LINES
    assert len(first) < LONGEST_SHOWN + 130 * MAX_LINES + 200
    assert code_difference([Candidate("x" * 100_000 + code, found=one) for one in found])(0, 1) is not None


def test_a_pair_view_without_a_prompt_for_it_is_refused():
    own = Domain(name="sql-pairs", pair=code_difference)
    with pytest.raises(SettingError, match="pair-difference"):
        register_domain(own)
    template = "{problem}\n{a}\n{b}\nWhich is right? <winner>A-{code} or B-{code}</winner>"
    assert register_domain(replace(own, templates={"pair-difference": template})).pair is code_difference
    with pytest.raises(SettingError, match="candidates"):
        register_domain(replace(own, prompts="code", pair=lambda: None))
