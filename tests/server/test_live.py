"""In front of a real model: what clients are billed is what the model server counted."""

import re
import urllib.request

import openai
import pytest
from platformdirs import user_cache_path

from caps.models.embedded import LlamaServer
from caps.models.weights import default_weights
from caps.testing import running

pytestmark = pytest.mark.xdist_group("llama.cpp")


def counted(model):
    with urllib.request.urlopen(model.url.removesuffix("/v1") + "/metrics") as reply:
        text = reply.read().decode()
    names = ("prompt_tokens_total", "tokens_predicted_total")
    return [int(float(re.search(rf"^llamacpp:{name} (\S+)$", text, re.M)[1])) for name in names]


@pytest.fixture
def prompts(tmp_path):
    """Prompts in few words: a small model on one core reads a hundred tokens a second."""
    for name in ("code", "math", "general"):
        (tmp_path / f"solo-{name}.txt").write_text("{problem}\n{candidate}\nRate it.")
    return tmp_path


def test_usage_is_what_the_model_server_counted(prompts):
    options = {"n": 2, "strategy": "pointwise"}
    more = {"cache_prompt": False, "caps": options}
    with LlamaServer(default_weights(user_cache_path("caps")), context=2048) as model:
        words = ("--reply", "tags", "--extra", "cache_prompt=false", "--prompts", prompts)
        with running(model.url, *words) as up, openai.OpenAI(base_url=up.url, api_key="any") as client:
            before = counted(model)
            answer = client.chat.completions.create(
                model="caps/smol",
                messages=[{"role": "user", "content": "Name a colour."}],
                max_tokens=4,
                temperature=1.5,
                seed=3,
                extra_body=more,
            )
            spent = [now - then for now, then in zip(counted(model), before, strict=True)]
    assert answer.choices[0].message.content
    assert [answer.usage.prompt_tokens, answer.usage.completion_tokens] == spent
    assert (answer.usage.caps["generation"]["calls"], answer.usage.caps["verifier"]["calls"]) == (2, 2)
    assert not answer.usage.caps["estimated"]
