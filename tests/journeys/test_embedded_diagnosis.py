"""The embedded model is called what it is."""

import asyncio

import pytest

from caps.config import RunConfig
from caps.core.types import Candidate, Case, Problem
from caps.session.parts import load_templates, make_prepare
from caps.session.resolve import resolve
from caps.statistics.judge_measures import classify, is_usable
from caps.studies.advice import findings_of
from caps.studies.diagnosis import Plan, ask, schedule, subjects

pytestmark = pytest.mark.xdist_group("llama.cpp")


SUM = Case(
    "sum",
    Problem.of("2+3?"),
    (Candidate("\\boxed{5}", correct=True), Candidate("\\boxed{6}", correct=False)),
    "math",
)


def test_the_embedded_model_is_not_told_from_a_coin(tmp_path):
    for name in load_templates():  # in few words: one core reads a hundred tokens a second
        if name.startswith("pair"):
            (tmp_path / name).write_text("{problem}\n{a}\n{b}\nWho is right?")
    config = RunConfig(
        model="embedded", prompts=str(tmp_path), context_tokens=512, threads=1, hard_evidence="off"
    )
    plan = Plan(pairs=1)
    asked = asyncio.run(ask(resolve(config), schedule(list(subjects([SUM], make_prepare())), plan), plan))
    assert [obs.malformed for obs in asked.observations] == [False] * 4
    assert all(obs.tokens > 20 for obs in asked.observations)
    measured = findings_of(asked).measured
    full = measured.levels["E2"]
    assert full.accuracy.contains(0.5)
    assert classify(full.accuracy) in ("chance", "undecided")
    assert not is_usable(measured)
