"""A judge's profile, from a file to a strategy that uses it."""

import json
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from caps.core.errors import InputError, SettingError
from caps.core.judge_profile import JudgeProfile
from caps.core.play import Capabilities
from caps.core.settings import setting
from caps.core.types import Selection
from caps.judging.profiles import profile_row, read_profile
from caps.session.parts import make_strategy

TOY = f"{__name__}:Toy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toy:
    """Trusts the first sample, and knows its judge."""

    capabilities: ClassVar = Capabilities(uses_judge_profile=True)

    e2_high: float = setting(0.6, "how often a HIGH verdict is right")
    first_slot: float = setting(0.5, "pull of slot A")
    sure: int = setting(3, "a count that only shares its name with the profile's share")

    def play(self, entrants, rng):
        yield from ()
        return Selection(entrants[0].id, tuple(one.id for one in entrants))


def test_what_is_written_is_read_again(tmp_path):
    profile = replace(JudgeProfile(), e2_high=0.93, sure=0.1)
    path = tmp_path / "judge.json"
    path.write_text(json.dumps(profile_row(profile, {"model": "m", "counts": {"pairs": 40}})))
    assert read_profile(path) == profile


def test_a_strategy_gets_the_fields_it_has_and_set_wins_over_them():
    profile = replace(JudgeProfile(), e2_high=0.93, first_slot=0.7, sure=0.2)
    assert make_strategy(TOY, profile=profile) == Toy(e2_high=0.93, first_slot=0.7)
    assert make_strategy(TOY, {"first-slot": "0.4"}, profile) == Toy(e2_high=0.93, first_slot=0.4)


@pytest.mark.parametrize("name", ["caps-r", "pointwise", "majority"])
def test_a_strategy_without_such_fields_says_so(name):
    with pytest.raises(SettingError, match=f"strategy '{name}' does not use a judge profile"):
        make_strategy(name, profile=JudgeProfile())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[1]", "must be a JSON object"),
        ('{"model": "m"}', "no field in it"),
        ('{"e2_hihg": 0.5}', "did you mean 'e2_high'"),
        ('{"e2_high": 1.5}', "must be a number from 0 to 1"),
        ('{"e2_high": "much"}', "must be a number from 0 to 1"),
    ],
)
def test_a_file_that_is_no_profile_is_named(tmp_path, text, complaint):
    path = tmp_path / "judge.json"
    path.write_text(text)
    with pytest.raises(InputError, match=rf"--judge-profile {path}.*{complaint}"):
        read_profile(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_profile(tmp_path / "none.json")
