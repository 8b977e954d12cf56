import asyncio
from dataclasses import replace

import pytest

from caps.core.types import Candidate, Case, Found
from caps.evidence.domains import all_domains
from caps.evidence.entrants import read_candidates
from caps.evidence.profiles import profile_of, with_findings
from caps.findings.replies import REFUSED, ReplyFinder, is_refusal


def find(*texts):
    return asyncio.run(ReplyFinder().find(Case.of("p", texts)))


def test_fields_of_json_are_voted_on_one_by_one():
    found = find(
        '{"total": 12, "date": {"day": 3, "month": "May"}}',
        '```json\n{"date": {"month": "May", "day": 3}, "total": 12.0}\n```',
        '{"total": 21, "date": {"day": 3, "month": "May"}, "tax": null}',
        "It is twelve.",
    )
    assert found[0].note == found[1].note == "has the most common value in all 4 fields"
    assert (
        found[2].note
        == "differs from most in 2 of 4 fields: total = 21 (most: 12, 2 of 3); tax = null (most: absent, 2 of 3)"
    )
    assert found[3].note == "is no JSON object, and others are"


def test_prose_has_no_notes_and_costs_nothing():
    assert find("One answer.", "Another answer.") == []


REFUSALS = (
    "I'm sorry, but I can't help with that.", "I cannot assist with this request.", "I’m unable to provide that.",
    "As an AI language model, I cannot do this.", "<think>Hm.</think>\nSorry, I am not able to help.", "Unfortunately, I can't do that.",
)  # fmt: skip
ANSWERS = (
    "I can't believe how easy it is: 42.", "Sorry for the delay. The answer is 42.", "The sentence means: I cannot help you.",
    "I cannot " + "stress this enough. " * 50, "It can't be done, since 7 is prime.", "",
)  # fmt: skip


@pytest.mark.parametrize("text", REFUSALS)
def test_refusals_are_recognised(text):
    assert is_refusal(text)


@pytest.mark.parametrize("text", ANSWERS)
def test_answers_are_no_refusals(text):
    assert not is_refusal(text)


def test_refusals_are_one_answer_where_votes_count():
    found = find(*REFUSALS[:2], "Paris.")
    assert [one.cluster for one in found] == [REFUSED, REFUSED, None]
    general = next(domain for domain in all_domains() if domain.name == "general")
    candidates = [
        replace(Candidate(text), found=one)
        for text, one in zip((*REFUSALS[:2], "Paris."), found, strict=True)
    ]
    signatures = [one[0] for one in read_candidates(candidates, with_findings(profile_of(general)))]
    assert signatures[0] == signatures[1] != signatures[2]


TEXTS = ("x", "{\"a\": 1}", "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", '[{"role": "assistant", "content": "x"}]', "\\boxed{}", "```\n```", " ")  # fmt: skip


@pytest.mark.parametrize("domain", list(all_domains()), ids=lambda domain: domain.name)
@pytest.mark.parametrize("text", TEXTS)
def test_equal_texts_are_one_answer_in_every_domain(domain, text):
    twins = [Candidate(text), Candidate(text, score=1.0), Candidate(text, found=Found(parses=True))]
    signatures = {one[0] for one in read_candidates(twins, with_findings(profile_of(domain)))}
    assert len(signatures) == 1
    assert signatures != {None} or not text.strip()
