"""`--judge-profile`: what a judge is worth, from a file."""

import json

import pytest

from caps.assemble import make_strategy
from caps.cli.options import judge_words
from caps.config import parse_assignments
from caps.core.errors import InputError, SettingError


def test_a_profile_sets_the_fields_it_names(tmp_path):
    path = tmp_path / "judge.json"
    path.write_text(json.dumps({"e2_high": 0.93, "repeats": 0.1}))
    made = make_strategy("posterior", parse_assignments(judge_words(path)))
    assert (made.e2_high, made.repeats, made.e2_low) == (0.93, 0.1, make_strategy("posterior").e2_low)
    assert judge_words(None) == []


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ('{"e2_hihg": 0.9}', SettingError, "did you mean 'e2_high'"),
        ('{"e2_high": 9}', SettingError, "e2_high"),
        ("[1]", InputError, "object of numbers"),
        (None, InputError, "No such file"),
    ],
)
def test_a_file_that_is_no_profile_is_refused_by_name(tmp_path, text, error, words):
    path = tmp_path / "judge.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(error, match=words):
        judge_words(path)
