"""Downloads from a real server on this machine."""

import re
from hashlib import sha256

import msgspec
import pytest

from caps.core.errors import InputError
from caps.datasets.published import RECORD, fetch
from support.fileserver import serving


@pytest.fixture
def server():
    with serving() as running:
        yield running


def test_a_file_is_fetched_once_and_its_digest_written_down(server, tmp_path):
    urls = (f"{server.url}/a/x.jsonl", f"{server.url}/b/moved.jsonl")
    paths = fetch(urls, tmp_path / "new")
    assert [path.read_bytes() for path in paths] == [server.content] * 2
    record = msgspec.json.decode((tmp_path / "new" / RECORD).read_bytes())
    assert record["x.jsonl"] == {
        "url": urls[0], "sha256": sha256(server.content).hexdigest(), "bytes": len(server.content),
    }  # fmt: skip
    assert fetch(urls, tmp_path / "new") == paths
    assert server.asked == ["/a/x.jsonl", "/b/moved.jsonl", "/real/moved"]


def test_a_damaged_copy_is_fetched_anew_and_a_changed_original_is_refused(server, tmp_path):
    urls = (f"{server.url}/x.jsonl",)
    (path,) = fetch(urls, tmp_path)
    path.write_text("damaged")
    fetch(urls, tmp_path)
    assert path.read_bytes() == server.content
    path.unlink()
    server.content = b"something else"
    with pytest.raises(InputError, match="has changed: its digest is"):
        fetch(urls, tmp_path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("name", "said"), [("gone", r"cannot be fetched \(status 404\)"), ("cut", "99|Incomplete|ended after")]
)
def test_what_cannot_be_fetched_is_named_and_leaves_nothing_behind(server, tmp_path, name, said):
    with pytest.raises(InputError, match=said) as caught:
        fetch((f"{server.url}/{name}",), tmp_path)
    assert f"{server.url}/{name}" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_flood_is_cut_off_and_a_dead_or_odd_address_named(server, tmp_path):
    with pytest.raises(InputError, match="sends more than 5 bytes"):
        fetch((f"{server.url}/x",), tmp_path, max_bytes=5)
    server.server_close()
    with pytest.raises(InputError, match="download it by other means"):
        fetch(("http://127.0.0.1:9/x",), tmp_path)
    with pytest.raises(InputError, match="only http and https"):
        fetch(("file:///etc/passwd",), tmp_path)
    (tmp_path / RECORD).write_text("[")
    with pytest.raises(InputError, match=re.escape(RECORD)):
        fetch((f"{server.url}/x",), tmp_path)


def test_a_mirror_takes_the_place_of_the_host(server, tmp_path):
    (path,) = fetch(("https://example.org/deep/x.jsonl",), tmp_path, mirror=server.url + "/")
    assert (path.name, server.asked) == ("x.jsonl", ["/deep/x.jsonl"])
