"""Recorded verdicts: what is written is read again, and what is wrong is named with file, line and field."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caps import InputError, Level, Pairing, Pick, Rating, SettingError, Solo, Usage, Verdict
from caps.config.tables import Place
from caps.core.types import Group
from caps.datasets import verdicts
from caps.datasets.imports import open_cases
from caps.datasets.verdicts import Recorded, parse_recorded, read_recorded, read_records, write_recorded

LINE = {"case": "q", "judge": "j", "shown": [0, 3], "verdict": "A"}


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def read(path):
    return [one for _, one in read_recorded(path)]


ratings = st.floats(1, 10)
verdict_answers = st.tuples(
    st.builds(
        Pairing,
        st.just(0),
        st.integers(1, 9),
        st.sampled_from([Level.PARTIAL, Level.FULL]),
        st.integers(0, 3),
        st.sampled_from(["verdicts", "ratings"]),
    ),
    st.builds(Verdict, ratings, ratings),
)
solo_answers = st.tuples(
    st.builds(Solo, st.integers(0, 9), st.just(Level.FULL), st.integers(0, 3)), st.builds(Rating, ratings)
)
group_answers = st.tuples(st.just(Group((2, 0, 1), Level.FULL)), st.builds(Pick, st.integers(0, 2)))


@given(
    answered=st.one_of(verdict_answers, solo_answers, group_answers),
    case=st.text(min_size=1).filter(lambda text: text == text.strip() and text.isprintable()),
    usage=st.none() | st.builds(Usage, st.integers(0, 10**6), st.integers(0, 10**6)),
    merged=st.booleans(),
)
def test_what_is_written_is_read_again(answered, case, usage, merged):
    ask, answer = answered
    merged = merged and isinstance(ask, Pairing)
    one = Recorded(case, "a judge", ask, answer, merged=merged, usage=usage)
    assert parse_recorded(json.loads(write_recorded(one)), Place("line")) == one


def test_confidence_may_be_a_word_a_weight_two_ratings_or_missing():
    def said(**more):
        one = parse_recorded({**LINE, **more}, Place("line"))
        return one.answer, one.sure

    assert said() == (Verdict(9, 3), False)
    assert said(confidence="LOW", verdict="B") == (Verdict(5, 7), True)
    assert said(weight=1.0) == (Verdict(10, 1), True)
    assert said(weight=1 / 3, verdict="B") == (Verdict(4, 7), True)
    assert said(ratings=[0, 3], scale=[0, 3], verdict="B") == (Verdict(1, 10), True)
    assert said(verdict="TIE") == (Verdict(5, 5), True), "a tie has no confidence to miss"


def test_a_rating_on_another_scale_is_put_on_ours():
    row = {"case": 7, "shown": [2], "rating": 2, "scale": [0, 4]}
    one = parse_recorded(row, Place("line"))
    assert (one.case, one.judge, one.ask, one.answer) == ("7", "judge", Solo(2, Level.FULL), Rating(5.5))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"confidance": "HIGH"}, "confidance: no such key; did you mean 'confidence'"),
        ({"case": None}, "case: is missing"),
        ({"judge": ""}, "judge: must have 1 to 500 characters, not 0"),
        ({"shown": [0]}, "shown: must hold 2 for a line with verdict, not 1"),
        ({"shown": [0, 0]}, "shown: has a candidate twice"),
        ({"shown": [0, -1]}, r"shown\[1\]: must be the index of a candidate, from 0 to 99,999, not -1"),
        ({"shown": [0, True]}, r"shown\[1\]: must be the index of a candidate, from 0 to 99,999, not True"),
        ({"shown": "01"}, "shown: must be a list, not '01'"),
        ({"verdict": "first"}, "verdict: must be one of A, B, TIE, not 'first'"),
        ({"verdict": None}, "verdict: is missing; one of verdict, ratings, rating or best"),
        ({"confidence": "high"}, "confidence: must be one of HIGH, LOW"),
        ({"weight": 2}, "weight: must be above 0 and at most 1, and 0 for a TIE, not 2"),
        ({"weight": 0}, "weight: must be above 0 and at most 1"),
        ({"weight": 0.5, "confidence": "LOW"}, "confidence: is given with weight"),
        ({"ratings": [3, 9]}, "verdict: is A, which contradicts ratings"),
        ({"ratings": [3, 90]}, r"ratings\[1\]: must be from 1 to 10, its scale, not 90"),
        ({"ratings": [3]}, r"ratings: must be a list of 2, not \[3\]"),
        ({"ratings": [1, 2], "scale": [3, 3]}, "scale: must be two numbers"),
        ({"level": "full"}, "level: must be one of E0, E1, E2"),
        ({"draw": -1}, "draw: must be a whole number from 0 to 1,000,000"),
        ({"rating": 3}, "rating: is given with verdict"),
        ({"verdict": None, "best": 1}, r"best: must be one of at least two candidates in shown, not 1"),
        ({"verdict": None, "rating": 3, "shown": [1], "merged": True}, "merged: only a verdict"),
        ({"texts": ["x"]}, "texts: must hold 2 digests"),
        ({"tokens": -4}, "tokens: must be a whole number from 0 to 1,000,000,000"),
    ],
)
def test_a_wrong_field_is_named_with_file_and_line(change, said, tmp_path):
    path = write(tmp_path / "v.jsonl", LINE, {**LINE, **change})
    good, bad = read(path)
    assert isinstance(good, Recorded)
    assert isinstance(bad, InputError)
    with pytest.raises(InputError, match=rf"v\.jsonl:2: {said}"):
        raise bad


@pytest.mark.parametrize("line", ["[]", "{", '"x"', "nul\x00l", '{"case": NaN, "shown": []}', "[" * 5000])
def test_a_line_that_is_no_object_is_named(line, tmp_path):
    path = tmp_path / "v.jsonl"
    path.write_text(json.dumps(LINE) + "\n" + line + "\n" + json.dumps({**LINE, "shown": [3, 0]}) + "\n")
    first, bad, last = read(str(path))
    assert "v.jsonl:2: " in str(bad)
    assert (first.ask.a, last.ask.a) == (0, 3)


def test_a_contradiction_is_refused_and_a_repetition_is_not(tmp_path):
    records = read_records(write(tmp_path / "same.jsonl", LINE, LINE, {**LINE, "draw": 1, "verdict": "B"}))
    assert len(records.judges["j"]["q"]) == 2
    with pytest.raises(InputError, match=r"other.jsonl:2: a different answer to the same ask"):
        read_records(write(tmp_path / "other.jsonl", LINE, {**LINE, "verdict": "B"}))
    merged = {**LINE, "merged": True}
    with pytest.raises(InputError, match="a different answer"):
        read_records(write(tmp_path / "merged.jsonl", merged, {**merged, "shown": [3, 0]}))


def test_more_answers_than_fit_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(verdicts, "MAX_ANSWERS", 2)
    path = write(tmp_path / "v.jsonl", *({**LINE, "draw": draw} for draw in range(3)))
    with pytest.raises(InputError, match="v.jsonl:3: there are more than 2 answers"):
        read_records(path)


def test_an_empty_or_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="the file is empty; recorded verdicts"):
        read_records(write(tmp_path / "empty.jsonl"))
    with pytest.raises(InputError, match="missing.jsonl: No such file"):
        read_records(str(tmp_path / "missing.jsonl"))


def test_a_judge_has_to_be_named_where_there_are_several(tmp_path):
    records = read_records(write(tmp_path / "v.jsonl", LINE, {**LINE, "judge": "other"}))
    assert records.of("other")[0] == "other"
    with pytest.raises(SettingError, match=r"name one of its judges .*: there are j, other"):
        records.of(None)
    with pytest.raises(SettingError, match="has no judge 'othr'.*did you mean 'other'"):
        records.of("othr")


def test_verdicts_given_as_cases_are_named(tmp_path):
    path = write(tmp_path / "v.jsonl", LINE)
    with pytest.raises(InputError, match="contains recorded verdicts, not cases: pass it as --recorded"):
        list(open_cases(path))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_named(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("bytes") / "v.jsonl"
    path.write_bytes(json.dumps(LINE).encode() + b"\n" + data)
    try:
        assert all(isinstance(one, Recorded | InputError) for one in read(str(path)))
    except InputError as error:
        assert "v.jsonl" in str(error)
