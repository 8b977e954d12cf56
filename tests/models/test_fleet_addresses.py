import pytest

from caps.core.errors import SettingError
from caps.core.secrets import shown_address
from caps.models.fleet import WeightedAddress, is_fleet, join_addresses, parse_fleet

A, B = "http://a:8000/v1", "http://b:8000/v1"


@pytest.mark.parametrize(
    "words",
    [
        f"{A},{B}=2",
        f"{A} , {B}=2",
        f"{A}\n{B}=2",
        f"{A},{B}=2,",
        join_addresses([A, f"{B}=2"]),
        f"{A}=1 {B}=2.0",
    ],
)
def test_several_addresses_stand_behind_one_another(words):
    assert is_fleet(words)
    assert parse_fleet(words) == (WeightedAddress(A, 1.0), WeightedAddress(B, 2.0))


@pytest.mark.parametrize(
    ("word", "url", "weight"),
    [
        ("https://c/v1=2?api-version=3", "https://c/v1?api-version=3", 2.0),
        ("http://c:8000=3", "http://c:8000", 3.0),
        ("http://u:pw=7@c/v1=.5", "http://u:pw=7@c/v1", 0.5),
    ],
)
def test_a_weight_ends_the_path(word, url, weight):
    assert is_fleet(word)
    assert parse_fleet(word) == (WeightedAddress(url, weight),)


@pytest.mark.parametrize(
    "word",
    [A, "https://c/v1?api-version=3", "http://u:pw=7@c/v1", "http://c/a,b/v1", "file:///m.gguf", "p.m:f", ""],
)
def test_one_address_without_a_weight_stays_what_it_is(word):
    assert not is_fleet(word)


def test_an_address_listed_twice_is_one_of_both_weights():
    assert parse_fleet(f"{A},{A}=2") == (WeightedAddress(A, 3.0),)


def test_a_weight_of_nothing_is_refused_without_showing_the_password():
    with pytest.raises(SettingError, match=r"http://c/v1=0: a weight must be above 0") as caught:
        parse_fleet(f"{A},http://u:secret@c/v1=0")
    assert "secret" not in str(caught.value)


def test_passwords_are_not_written_down():
    given = f"http://u:secret@a/v1?api-version=1&key=secret&secret#secret, {B}=2"
    assert shown_address(given) == f"http://a/v1?api-version=1&key=***&***,{B}=2"
