"""Numbers of candidates as evidence: what they move, what their weight is fitted to, what is missing."""

import json
from dataclasses import replace
from random import Random

import pytest

from caps import Candidate, Case, Entrant
from caps.datasets.case_files import parse_case, read_cases, write_case
from caps.evidence.entrants import missing_numbers
from caps.strategies.posterior import Posterior, beliefs
from caps.studies.calibration import ProbedCase, conclude, probe_of
from support.playing import field_of, lower_id_wins, played
from support.shell import caps, json_lines


def scored(values, names=None, feature="rm_score"):
    field = field_of(len(values), names)
    return [
        replace(one, features={} if x is None else {feature: x}) for one, x in zip(field, values, strict=True)
    ]


def test_a_feature_moves_the_probability_and_one_that_is_not_named_does_not():
    field = scored([0.1, 0.2, 0.9, 0.3], list("wxyz"))
    plain, with_feature = Posterior(), Posterior(feature="rm_score")
    before, after = beliefs(plain, field, ())[0], beliefs(with_feature, field, ())[0]
    assert before[0] == pytest.approx(before[2])
    assert after[2] > before[2] > after[0]
    assert beliefs(replace(with_feature, feature_weight=0.0), field, ())[0] == before


def test_a_feature_has_no_scale_and_a_missing_number_counts_as_the_mean():
    strategy = Posterior(feature="rm_score")
    chances = beliefs(strategy, scored([1, 2, 9], list("xyz")), ())[0]
    stretched = beliefs(strategy, scored([-50, 50, 750], list("xyz")), ())[0]
    assert chances == pytest.approx(stretched)
    lacking = beliefs(strategy, scored([1, 3, None], list("xyz")), ())[0]
    assert lacking[0] < lacking[2] < lacking[1]


def test_an_explanation_names_the_feature_and_how_far_it_moved_the_choice():
    strategy = Posterior(feature="rm_score")
    contest = played(strategy, scored([3.0, 1.0, 2.0, 0.0], list("wxyz")), lower_id_wins)
    found = {one.what: one.change for one in contest.explain()}
    assert found["rm_score"] > 0.02
    assert sum(found.values()) == pytest.approx(contest.selection.facts["probability"])


def labelled(count, *, informative, programs=False, seed=5):
    """Probed cases with four candidates that all differ, of which one is right and has a high score."""
    rng, strategy = Random(seed), Posterior(feature="rm_score")
    found = []
    for number in range(count):
        right = rng.randrange(4)
        values = [rng.gauss(2.0 * (k == right and informative), 1) for k in range(4)]
        candidates = tuple(Candidate(f"text {k}", correct=k == right) for k in range(4))
        case = Case.of(f"{number}?", [])
        probe = probe_of(replace(case, candidates=candidates), strategy)
        entrants = [replace(one, signature_kind="open" if programs else "value") for one in scored(values)]
        found.append(ProbedCase(probe, entrants, (), number))
    return found, strategy


@pytest.mark.parametrize("programs", [False, True])
def test_the_weight_of_a_feature_is_fitted_to_labels(programs):
    telling, strategy = labelled(80, informative=True, programs=programs)
    idle, _ = labelled(80, informative=False, programs=programs)
    high, low = (conclude(some, strategy).strengths["feature_weight"] for some in (telling, idle))
    assert high > 0.7
    assert 0 <= low < 0.3


def test_too_few_labels_and_a_weight_that_the_user_set_leave_it_as_it_is():
    few, strategy = labelled(20, informative=True)
    assert "feature_weight" not in conclude(few, strategy).strengths
    many, _ = labelled(40, informative=True)
    assert "feature_weight" not in conclude(many, strategy, fixed=("feature_weight",)).strengths
    assert "feature_weight" not in conclude(many, replace(strategy, feature="")).strengths


def test_numeric_fields_of_candidates_are_read_and_written_and_no_label_becomes_one():
    row = {"text": "a", "rm_score": 2, "note": "x", "flag": True, "big": 10**400, "grade": 3.0, "score": 0.5}
    case = parse_case(json.dumps({"problem": "?", "candidates": [row, "b"]}), default_id="1")
    (first, second) = case.candidates
    assert first.numbers == {"rm_score": 2.0, "note": None, "flag": None, "big": None}
    assert second.numbers == {}
    assert json.loads(write_case(case))["candidates"][0] == {
        "text": "a", "score": 0.5, "grade": 3.0, "rm_score": 2.0,
    }  # fmt: skip


def test_a_missing_number_is_named_with_line_and_field(tmp_path):
    file = tmp_path / "cases.jsonl"
    candidates = [{"text": "a", "rm_score": 1}, {"text": "b", "rm_score": "high"}, "c"]
    file.write_text("\n" + json.dumps({"problem": "?", "candidates": candidates}))
    (case,) = read_cases(str(file))
    said = missing_numbers(case, "rm_score")
    assert said == f"{file}:2: candidates[1].rm_score is not a number, candidates[2].rm_score is missing"
    assert missing_numbers(case, "tests_passed") == ""
    assert missing_numbers(Case.of("?", ["a"]), "score") == "case '1': candidates[0].score is missing"


def test_a_finding_cannot_be_claimed_in_a_case_file():
    case = parse_case('{"problem": "?", "candidates": [{"text": "a", "tests_passed": 1}]}', default_id="1")
    done = caps("select", "-", "--strategy", "reward", "--set", "feature=tests_passed", "--no-journal",
                "--hard-evidence", "off", stdin=write_case(case).decode())  # fmt: skip
    assert "no candidate has the number 'tests_passed'" in " ".join(done.stderr.split())


def test_reward_chooses_by_any_field_and_goes_on_where_it_is_missing():
    rows = [
        {"id": str(n), "problem": "?", "candidates": [{"text": "a", "rm": 1}, {"text": "b", "rm": n}, "c"]}
        for n in range(2, 10)
    ]
    rows.append({"id": "none", "problem": "?", "candidates": ["a", "b"]})
    done = caps("select", "-", "--strategy", "reward", "--set", "feature=rm", "--json", "--no-journal",
                stdin="\n".join(map(json.dumps, rows)))  # fmt: skip
    said = " ".join(done.stderr.split())
    assert [line["winner"] for line in json_lines(done)] == [1] * 8
    assert done.returncode == 1
    assert "-:1: candidates[2].rm is missing" in said
    assert "4 further cases have candidates without a number 'rm'" in said
    assert "no candidate has the number 'rm'" in said


def test_entrants_without_any_number_are_ranked_as_without_the_feature():
    field = [Entrant(k, f"s{k}", (0, 50, 100)) for k in range(4)]
    with_feature = played(Posterior(feature="rm"), field, lower_id_wins).selection
    assert with_feature.scores == played(Posterior(), field, lower_id_wins).selection.scores
