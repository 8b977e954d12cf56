"""The shipped prompts: complete, short, and arranged so that prefix caches hold."""

import re
from os.path import commonprefix

import pytest

from caps.prompts.criteria import verdicts_by_criterion
from caps.prompts.read import read_reply
from prompts.shown import ASK_OF_BUILT_IN, ASKS
from prompts.shown import BUILT_IN as TEMPLATES

BY_CORRECTNESS = [name for name in TEMPLATES if name.endswith(("-code.txt", "-math.txt"))]
GENERAL = [name for name in TEMPLATES if name.endswith("-general.txt")]
BY_CRITERIA = [name for name in TEMPLATES if name.endswith("-criteria.txt")]
OWN_WORDS = "## Task\n"


def test_every_ask_in_every_domain_has_a_template_and_there_are_no_others() -> None:
    assert set(TEMPLATES) == set(ASK_OF_BUILT_IN)


def test_all_templates_share_the_preamble_up_to_the_problem() -> None:
    for names in (BY_CORRECTNESS, GENERAL, BY_CRITERIA):
        preambles = {TEMPLATES[name].partition("{problem}")[0] for name in names}
        assert len(preambles) == 1
        assert len(preambles.pop()) > 200
    # Criteria are the same for all cases of a run: they stand before what differs.
    assert all("{criteria}" in TEMPLATES[name].partition("{problem}")[0] for name in BY_CRITERIA)


def test_all_pairwise_templates_share_everything_up_to_the_stages_own_words() -> None:
    for some in (BY_CORRECTNESS, GENERAL, BY_CRITERIA):
        pairwise = [name for name in some if name.startswith("pair-")]
        heads = {TEMPLATES[name].partition(OWN_WORDS)[0] for name in pairwise}
        assert len(heads) == 1
        assert re.findall(r"\{\w+\}", heads.pop())[-3:] == ["{problem}", "{a}", "{b}"]
        assert OWN_WORDS in commonprefix([TEMPLATES[name] for name in pairwise])


@pytest.mark.parametrize("name", TEMPLATES)
def test_words_of_a_domain_or_a_stage_come_only_after_the_candidates(name: str) -> None:
    head, _, own = TEMPLATES[name].partition(OWN_WORDS)
    assert not re.search(r"\b(code|program|math|grader|reviewer|winner|A or B|1 to 10)\b", head)
    assert own.strip()
    assert set(re.findall(r"\{\w*\}", own)) == {"{code}"}
    assert "{code}" not in head


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_costs_fewer_than_350_tokens_even_at_three_characters_a_token(name: str) -> None:
    assert len(TEMPLATES[name]) / 3 < 350


@pytest.mark.parametrize(
    "name", [name for name in BY_CORRECTNESS if name.startswith(("pair-ratings", "solo"))]
)
def test_a_rating_prompt_keeps_the_papers_anchors(name: str) -> None:
    code = "10 = correct and robust, 5 = borderline, 1 = incorrect"
    other = "10 = certainly correct, 8 = very likely, 5 = uncertain, 3 = likely incorrect, 1 = certainly incorrect"
    assert (code if "code" in name else other) in TEMPLATES[name]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_asks_for_the_tags_its_parser_reads_and_for_the_code(name: str) -> None:
    wanted = {
        "pair-e1": ["winner", "confidence"],
        "pair-e2": ["winner", "confidence"],
        "pair-difference": ["winner", "confidence"],
        "pair-ratings": ["rating_A", "rating_B"],
        "solo": ["rating"],
        "group": ["best"],
    }[name.rpartition("-")[0]]
    lines = [line for line in TEMPLATES[name].splitlines() if line.startswith("<")]
    assert [line[1:].partition(">")[0] for line in lines] == wanted
    # Behind the label, so that both are one word to copy; next to the tags, at the very end.
    assert re.search(r"write .*(?:A|1)-\{code\}", TEMPLATES[name].splitlines()[-1])


@pytest.mark.parametrize("name", TEMPLATES)
def test_what_a_template_shows_as_an_example_is_no_verdict_when_it_is_copied(name: str) -> None:
    own = TEMPLATES[name].rpartition("\n\n")[2].replace("{code}", "k7f3")
    lines = own.splitlines()
    tagged = "\n".join(line for line in lines if line.startswith("<"))
    assert verdicts_by_criterion(ASKS[0], own, "k7f3", 2) == ()
    for copied in (own, tagged, tagged.replace(" k7f3", ""), *lines):
        for ask in ASKS:
            assert read_reply(ask, copied, truncated=False, nonce="abc123", code="k7f3").answer is None


@pytest.mark.parametrize("name", [name for name in BY_CORRECTNESS if name.startswith(("pair-e1", "pair-e2"))])
def test_a_template_says_when_a_tie_is_right(name: str) -> None:
    assert re.search(r"TIE-\{code\} if both are equally right or equally wrong", TEMPLATES[name])


@pytest.mark.parametrize("name", GENERAL + BY_CRITERIA)
def test_general_prompts_do_not_speak_of_correctness_alone(name: str) -> None:
    assert "Only correctness counts" not in TEMPLATES[name]
    assert ("{criteria}" in TEMPLATES[name]) == (name in BY_CRITERIA)
    assert ("helpful, correct and complete" in TEMPLATES[name]) == (name not in BY_CRITERIA)
