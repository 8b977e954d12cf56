"""The shipped prompts: complete, short, and arranged so that prefix caches hold."""

import re
import subprocess
import sys
from os.path import commonprefix
from pathlib import Path

import pytest

from caps.core.types import Problem
from caps.prompts.read import read_reply
from caps.prompts.render import render
from caps.prompts.reply_forms import verdicts_by_criterion
from caps.session.parts import load_templates
from support.shown import ASK_OF_BUILT_IN, ASKS
from support.shown import BUILT_IN as TEMPLATES

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
    assert re.search(r"is .*(?:A|1)-\{code\}", TEMPLATES[name].splitlines()[-1])


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
    assert re.search(r"TIE-\{code\} if both are equally right or wrong", TEMPLATES[name])


@pytest.mark.parametrize("name", GENERAL + BY_CRITERIA)
def test_general_prompts_do_not_speak_of_correctness_alone(name: str) -> None:
    assert "Only correctness counts" not in TEMPLATES[name]
    assert ("{criteria}" in TEMPLATES[name]) == (name in BY_CRITERIA)
    assert ("helpful, correct and complete" in TEMPLATES[name]) == (name not in BY_CRITERIA)


# --- The prompts of the paper's studies ---

ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "src" / "caps" / "studies" / "paper"
PAPERS = {file.name: file.read_text() for file in (STUDIES / "prompts").glob("*.txt")}


def test_the_papers_studies_ask_in_our_words_but_for_the_meaning_of_tie_and_low() -> None:
    assert set(PAPERS) == {f"pair-{level}-{kind}.txt" for level in ("e1", "e2") for kind in ("code", "math")}
    for name, text in PAPERS.items():
        *words, last = text.splitlines()
        *ours, _ = TEMPLATES[name].splitlines()
        assert words == ours
        assert last.startswith("WINNER is A-{code}, B-{code} or TIE-{code}. CONFIDENCE is HIGH if")
    studies = [path.read_text() for path in STUDIES.glob("*.toml")]
    assert all('prompts = "prompts"' in study for study in studies if "[judge]" in study)


def box(title: str, *lines: str) -> str:
    options = f"colback=promptbg,\n    title={{\\textbf{{{title}}}}},\n    enhanced"
    text = "\\\\\n".join(lines)
    return f"\\begin{{tcolorbox}}[\n    {options}]\n\\small\n\\ttfamily\n{text}\n\\end{{tcolorbox}}\n"


def run_script(source: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    script = ROOT / "scripts" / "paper_prompts.py"
    words = [sys.executable, script, source, folder]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_the_papers_own_prompts_are_written_from_a_copy_of_its_source(tmp_path) -> None:
    """The text of these boxes is made up; only their form is the paper's."""
    pair = ("Look at \\textbf{**both**} \\& choose.\\\\[0.5em]\n\\{problem\\}", "\\{sol\\_A\\}", "\\{evidence\\_B\\}",
            "$<$winner$>$A or B$<$/winner$>$ at 100\\%")  # fmt: skip
    solo = ("Rate it.", "\\{problem\\}", "\\{code\\}")
    titles = ["V1 Pairwise Code Verification Prompt", "V1 Pairwise Math Verification Prompt", "CAPS E1 Code Prompt (summary)",
              "CAPS E1 Math Prompt (summary)", "CAPS E2 Code Prompt (whole)", "CAPS E2 Math Prompt (whole)"]  # fmt: skip
    boxes = [box(title, *pair) for title in titles]
    boxes += [box(f"Pointwise {kind} Verification Prompt", *solo) for kind in ("Code", "Math")]
    source = tmp_path / "paper.tex"
    source.write_text("\n".join([box("Code Generation Prompt", "no"), *boxes]))
    done = run_script(source, tmp_path / "prompts")
    assert (done.returncode, done.stdout.partition(" ")[0]) == (0, "8"), done.stderr
    loaded = load_templates(tmp_path / "prompts")
    assert loaded["pair-e1-math.txt"] == (
        "Look at **both** & choose.\n\n{problem}\n{a}\n{b}\n<winner>A or B</winner> at 100%\n"
    )
    assert loaded["solo-code.txt"] == "Rate it.\n{problem}\n{candidate}\n"
    render(loaded["solo-math.txt"], problem=Problem.of("p"), views=["x"], nonce="abc123")
    source.write_text("\n".join(boxes[1:]))
    done = run_script(source, tmp_path / "prompts")
    assert done.returncode == 1
    assert "no box with the title 'V1 Pairwise Code Verification Prompt'" in done.stderr
