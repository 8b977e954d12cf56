"""The shipped prompts: complete, short, and arranged so that prefix caches hold."""

import re
from os.path import commonprefix

import pytest

from prompts.shown import ASK_OF, TEMPLATES

PAIRWISE = [name for name in TEMPLATES if name.startswith("pair-")]
OWN_WORDS = "## Task\n"


def test_every_ask_in_every_domain_has_a_template_and_there_are_no_others() -> None:
    assert set(TEMPLATES) == set(ASK_OF)
    assert len(TEMPLATES) == 15


def test_all_templates_share_the_preamble_up_to_the_problem() -> None:
    preambles = {text.partition("{problem}")[0] for text in TEMPLATES.values()}
    assert len(preambles) == 1
    assert len(preambles.pop()) > 200


def test_all_pairwise_templates_share_everything_up_to_the_stages_own_words() -> None:
    heads = {TEMPLATES[name].partition(OWN_WORDS)[0] for name in PAIRWISE}
    assert len(heads) == 1
    assert re.findall(r"\{\w+\}", heads.pop()) == ["{problem}", "{a}", "{b}"]
    assert commonprefix([TEMPLATES[name] for name in PAIRWISE]).endswith(OWN_WORDS)


@pytest.mark.parametrize("name", TEMPLATES)
def test_words_of_a_domain_or_a_stage_come_only_after_the_candidates(name: str) -> None:
    head, _, own = TEMPLATES[name].partition(OWN_WORDS)
    assert not re.search(r"\b(code|program|math|grader|reviewer|winner|A or B|1 to 10)\b", head)
    assert own.strip()
    assert "{" not in own


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_costs_fewer_than_350_tokens_even_at_three_characters_a_token(name: str) -> None:
    assert len(TEMPLATES[name]) / 3 < 350


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_asks_for_the_tags_its_parser_reads(name: str) -> None:
    wanted = {
        "pair-e1": ["<winner>A or B or TIE</winner>", "<confidence>HIGH or LOW</confidence>"],
        "pair-e2": ["<winner>A or B or TIE</winner>", "<confidence>HIGH or LOW</confidence>"],
        "pair-ratings": ["<rating_A>N</rating_A>", "<rating_B>N</rating_B>"],
        "solo": ["<rating>N</rating>"],
        "group": ["<best>NUMBER</best>"],
    }[name.rpartition("-")[0]]
    assert [line for line in TEMPLATES[name].splitlines() if line.startswith("<")] == wanted


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name.startswith(("pair-ratings", "solo"))])
def test_a_rating_prompt_keeps_the_papers_anchors(name: str) -> None:
    code = "10 = correct and robust, 5 = borderline, 1 = incorrect"
    other = "10 = certainly correct, 8 = very likely, 5 = uncertain, 3 = likely incorrect, 1 = certainly incorrect"
    assert (code if "code" in name else other) in TEMPLATES[name]
