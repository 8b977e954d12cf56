"""Pictures of a diagnosis and of a simulation: they hold the numbers, say what is simulated, and are well formed."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caps.core.errors import InputError
from caps.judging.simulated import PRESETS
from caps.reports.charts import Point, plane
from caps.reports.diagnosis import JudgeLabel, advice_words
from caps.reports.diagnosis_page import (
    diagnosis_page,
    diagnosis_pictures,
    strategies_picture,
)
from caps.reports.page import page_html
from caps.reports.pictures import svg_text, write_pictures
from caps.reports.simulation_page import simulation_page, simulation_picture
from caps.statistics.calibration import ReliabilityBin
from caps.statistics.estimates import pareto_front
from caps.studies.advice import conclude
from caps.studies.diagnosis import Plan, of_pools, schedule, simulate
from caps.studies.simulation import PoolModel, generated_pools
from reports.test_html import read

HOSTILE = "\u202e</title><script>alert(1)</script> & \x00"
NAMED = JudgeLabel(source="simulated judge 90", simulated=True)


@pytest.fixture(scope="module")
def found():
    plan = Plan(pairs=30)
    pools = list(of_pools(generated_pools(PoolModel(n=4), 20, 1)))
    asked = simulate(schedule(pools, plan), plan, PRESETS["90"])
    return conclude(asked, pools, seed=1, contests=20)


def words(picture):
    return " ".join("".join(one.itertext()) for one in ElementTree.fromstring(svg_text(picture.drawing)))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_on_the_front_nothing_is_cheaper_and_no_worse_and_behind_it_everything_is_beaten(options):
    kept = pareto_front(options)
    for place, (cost, value) in enumerate(options):
        beaten = any(c <= cost and v >= value and (c, v) != (cost, value) for c, v in options)
        twin = any(options[one] == (cost, value) for one in kept)
        assert twin != beaten
        assert not (beaten and place in kept)


def test_points_of_a_crowd_are_numbered_and_named_in_order():
    crowd = [
        Point(label=f"strategy {place}", tokens=100 + place, share=0.5, low=0.4, high=0.6)
        for place in range(7)
    ]
    texts = re.findall(r">([1-7]|strategy \d)</text>", plane(crowd, "Crowd").body)
    assert sorted(texts) == sorted(
        [str(place + 1) for place in range(7)] * 2 + [f"strategy {n}" for n in range(7)]
    )


def test_a_diagnosis_has_a_picture_for_each_question_with_its_numbers(found):
    drawn = {
        one.name: one
        for one in diagnosis_pictures(found.measured, found.options, found.chosen, "No model was asked")
    }
    assert list(drawn) == ["accuracy", "bias", "steadiness", "calibration", "strategies"]
    right = found.measured.levels["E2"].accuracy
    interval = f"({100 * right.low:.1f} to {100 * right.high:.1f})"
    assert f"E2, whole answers: {100 * right.value:.1f} % {interval}" in words(drawn["accuracy"])
    assert "E2, whole answers, HIGH: " in words(drawn["calibration"])
    assert all(option.strategy in words(drawn["strategies"]) for option in found.options)
    for name, picture in drawn.items():
        said = "Simulated contests" if name == "strategies" else "No model was asked."
        assert said in words(picture)


def test_a_picture_is_a_file_that_stands_alone_and_hostile_names_are_names(found, tmp_path):
    bad = replace(found.options[0], strategy=HOSTILE)
    picture = strategies_picture([bad, *found.options[1:]], bad)
    (path,) = write_pictures([picture], tmp_path / "new" / "plots")
    tree = ElementTree.fromstring(path.read_text())
    assert {one.tag.rpartition("}")[2] for one in tree.iter()} == {
        "svg", "title", "desc", "style", "g", "rect", "text", "path", "circle",
    }  # fmt: skip
    assert "var(" not in path.read_text()
    assert "⟦U+202E⟧</title><script>alert(1)" in words(picture)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file"):
        write_pictures([picture], tmp_path / "file")


def test_one_point_and_points_in_one_place_can_be_drawn():
    point = Point(label="alone", tokens=0, share=1, low=1, high=1)
    for points in ([point], [point, point]):
        assert "nan" not in plane(points, "One").body


def test_probabilities_are_drawn_as_a_curve_beside_the_ideal(found):
    stated = found.measured.levels["E2"].accuracy
    at = {
        name: replace(one, curve=(ReliabilityBin(0.62, stated), ReliabilityBin(0.94, stated)))
        for name, one in found.measured.levels.items()
    }
    drawn = diagnosis_pictures(replace(found.measured, levels=at), found.options, found.chosen, None)
    (curve,) = (one for one in drawn if one.name == "calibration")
    assert "as often as it says" in words(curve)
    assert "E1, partial views, 62 % stated: " in words(curve)
    assert "E1, partial views, 94 % stated: " in words(curve)


def test_the_page_answers_first_and_shows_every_number_without_scripts(found):
    page = diagnosis_page(found, NAMED, f"caps select {HOSTILE}", pairs_most=30, made=[("cases", HOSTILE)])
    read_ = read(page_html(page))
    advice, *_ = advice_words(found.measured, found.chosen)
    assert read_.text.index(advice[1:40]) < read_.text.index("caps select")
    assert read_.text.index("caps select") < read_.text.index("How often is it right?")
    assert "Simulated judge 90: no model was asked." in read_.text
    assert "caps select ⟦U+202E⟧</title><script>alert(1)" in read_.text
    for option in found.options:
        assert f"{option.tokens:,.0f}" in read_.text


def test_a_simulation_says_so_in_its_picture():
    row = {
        "strategy": HOSTILE, "pass_at_1": 0.5, "pass_at_1_interval": (0.4, 0.6), "tokens": {"E1": 10, "E2": 20},
        "token_share": None, "calls": {"E1": 1, "E2": 2}, "mixed_pass_at_1": None, "mixed_interval": None,
        "depth": 3.0, "pair_accuracy": {"E1": None, "E2": 0.7},
    }  # fmt: skip
    about = {
        "simulated": "pools and verdicts", "seed": 1, "problems": 9, "pass_at_n": 1.0, "mean_correct": 0.5,
        "rho": 0.12, "judge": {"accuracy": 0.8, "accuracy_partial": 0.7}, "pools": {"cases": str(Path("x"))},
    }  # fmt: skip
    picture = simulation_picture(about, [row])
    assert "Simulated (pools and verdicts): 9 problems" in words(picture)
    shown = read(page_html(simulation_page(about, [row], picture, baseline="v1"))).text
    assert "50.0  [40.0, 60.0]" in shown
    assert "No model was asked" in shown
