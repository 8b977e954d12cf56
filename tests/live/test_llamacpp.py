"""A whole selection with a real model on a real server: llama.cpp and the default weights."""

import json
import re
import urllib.request

import pytest
from platformdirs import user_cache_path

from caps.core.errors import InputError
from caps.models.llamacpp import LlamaServer
from caps.models.weights import default_weights
from shell import caps

pytestmark = pytest.mark.xdist_group("llama.cpp")


@pytest.fixture(scope="module")
def server():
    with LlamaServer(default_weights(user_cache_path("caps")), context=4096) as running:
        yield running


def counted(server):
    """What the server says it has read and written so far."""
    with urllib.request.urlopen(server.url.removesuffix("/v1") + "/metrics") as reply:
        text = reply.read().decode()
    names = ("prompt_tokens_total", "tokens_predicted_total")
    return [int(float(re.search(rf"^llamacpp:{name} (\S+)$", text, re.M)[1])) for name in names]


def test_a_selection_over_http_with_a_real_model_costs_what_the_server_counted(server, tmp_path):
    candidates = ["I add: 2 + 3 = 5, so \\boxed{5}", "It must be \\boxed{6}", "Clearly \\boxed{23}"]
    cases = tmp_path / "cases.jsonl"
    case = {"id": "sum", "domain": "math", "problem": "What is 2 + 3?", "candidates": candidates}
    cases.write_text(json.dumps(case) + "\n")
    words = (
        "select", cases, "--model", "any", "--base-url", server.url, "--journal", tmp_path / "journal.sqlite",
        "--max-tokens", 12, "--extra", "cache_prompt=false", "--json",
    )  # fmt: skip
    start = counted(server)
    caps(*words, "--strategy", "vanilla")
    greeted = counted(server)
    done = caps(*words, "--strategy", "caps", "--out", tmp_path / "run")
    ended = counted(server)
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    assert line["calls"] == {"E1": 1, "E2": 1}
    assert line["text"] in candidates
    rulings = [json.loads(row) for row in (tmp_path / "run" / "rulings.jsonl").read_text().splitlines()]
    assert sum(row["tokens"] for row in rulings) == line["tokens"]["asked"] > 400
    assert not line["tokens"]["estimated"]
    canary = [now - then for now, then in zip(greeted, start, strict=True)]
    spent = [now - then for now, then in zip(ended, greeted, strict=True)]
    assert spent == [line["tokens"]["billed"] + canary[0], line["tokens"]["output"] + canary[1]]

    again = caps(*words, "--strategy", "caps")
    assert again.returncode == 0
    assert json.loads(again.stdout)["tokens"]["billed"] == 0
    assert json.loads(again.stdout)["winner"] == line["winner"]


def test_weights_that_are_none_are_named(tmp_path):
    fake = tmp_path / "fake.gguf"
    fake.write_bytes(b"GGUF no")
    for path in (fake, tmp_path / "missing.gguf"):
        with pytest.raises(InputError, match=str(path)), LlamaServer(path):
            pass
