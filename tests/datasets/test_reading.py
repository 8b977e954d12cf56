"""Bombs and malice end in an `InputError` that names the limit; nothing hostile is carried out."""

import base64
import gzip
import os
import pickle
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caps.core.errors import InputError
from caps.datasets.code_sets import pickled_text, unpack_text
from caps.datasets.reading import Limits, decode, join_lines, lines

SMALL = Limits(line=1000, whole=2000, total=3000, packed=1000)


def wrap(data):
    return base64.b64encode(zlib.compress(data)).decode()


@given(st.text() | st.binary(max_size=50).filter(lambda b: b.isascii()))
def test_a_pickled_text_is_read_at_every_protocol(value):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        data = pickle.dumps(value, protocol)
        try:
            found = unpack_text(wrap(data))
        except InputError:
            # Old protocols spell texts and bytes in ways nobody publishes.
            assert protocol < 3
        else:
            assert found == (value if isinstance(value, str) else value.decode())


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.system, (f"touch {self.path}",))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_would_run_something_is_refused_and_runs_nothing(tmp_path, protocol):
    trap = tmp_path / "sprung"
    data = pickle.dumps(Trap(trap), protocol)
    with pytest.raises(InputError, match="is refused"):
        unpack_text(wrap(data))
    assert not trap.exists()
    pickle.loads(data)
    assert trap.exists(), "the trap itself works"


@pytest.mark.parametrize("value", [["a"], ("a", "b"), {"a": 1}, 3, None, True, {"a"}, 2.5, b"\xff"])
def test_a_pickle_of_anything_but_one_text_is_refused(value):
    with pytest.raises(InputError):
        pickled_text(pickle.dumps(value))


def test_an_instruction_that_would_allocate_gigabytes_does_not():
    assert pickled_text(b"\x80\x04\x8c\x01ar\xff\xff\xff\x7f.") == "a"
    with pytest.raises(InputError, match="not a pickle"):
        pickled_text(b"\x80\x04\x8d" + (1 << 62).to_bytes(8, "little") + b"a.")


@given(st.binary(max_size=60))
def test_any_bytes_are_a_text_or_an_input_error(data):
    for read in (
        pickled_text,
        lambda raw: unpack_text(wrap(raw)),
        lambda raw: unpack_text(raw.decode("latin-1")),
    ):
        try:
            assert isinstance(read(data), str)
        except InputError as error:
            assert str(error)


def test_a_zlib_bomb_is_not_unpacked():
    with pytest.raises(InputError, match="unpacks to more than 1,000 bytes"):
        unpack_text(wrap(b"0" * 10**7), SMALL.packed)
    with pytest.raises(InputError, match="truncated"):
        unpack_text(base64.b64encode(zlib.compress(os.urandom(500))[:-9]).decode(), SMALL.packed)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"0" * 10**6, ":1: the line is longer than 1,000 bytes"),
        (b"0\n" * 10**6, "holds more than 3,000 bytes"),
    ],
)
def test_a_gzip_bomb_ends_at_a_limit(tmp_path, content, said):
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(content))
    with pytest.raises(InputError, match=said):
        list(lines(str(path), SMALL))


def test_a_plain_file_is_no_bomb_however_long(tmp_path):
    path = tmp_path / "long.jsonl"
    path.write_bytes(b"0\n" * 5000)
    assert len(list(lines(str(path), SMALL))) == 5000


def test_gzip_is_known_without_its_name_and_a_file_read_as_one_has_a_limit(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_bytes(gzip.compress(b"a\nb\n"))
    assert list(lines(str(path))) == [b"a\n", b"b\n"]
    with pytest.raises(InputError, match="more than 2,000 bytes"):
        join_lines([b"0" * 999] * 3, "it", SMALL)


@pytest.mark.parametrize(
    "text", ["{", "[" * 10**5, "9" * 5000, '"\\ud800"', "\x00", "1e999", '{"a": NaN, ' + "[" * 10**5]
)
def test_what_is_not_json_is_said(text):
    for data in (text, text.encode()):
        with pytest.raises(InputError, match="not JSON"):
            decode(data)


def test_bare_nan_and_infinity_are_null():
    assert decode(b'{"a": NaN, "b": [-Infinity, 1]}') == {"a": None, "b": [None, 1]}
