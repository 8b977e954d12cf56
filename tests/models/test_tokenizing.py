"""Tokens counted by a `tokenizer.json`: in plans, forecasts, and where a server reports no usage."""

import json
import subprocess
import sys

import pytest
from tokenizers import Tokenizer as Library
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

import caps
from caps.models.tokenizing import Tokenizer
from caps.testing import Raw, ScriptedEndpoint, better_quality_wins, cases, write_cases
from support.shell import caps as command
from support.waiting import PATIENCE


@pytest.fixture
def path(tmp_path):
    """A tokenizer for which every word and every run of punctuation is a token; it would add and cut some."""
    library = Library(WordLevel({"[UNK]": 0, "[BOS]": 1}, unk_token="[UNK]"))
    library.pre_tokenizer = Whitespace()
    library.post_processor = TemplateProcessing(single="[BOS] $A", special_tokens=[("[BOS]", 1)])
    library.enable_truncation(4)
    library.enable_padding(length=8)
    library.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def without_usage(body, number):
    """A judge whose server does not say what a call took."""
    text = better_quality_wins(body).text.replace("\n", "\\n")
    return Raw(
        f'{{"model": "stub", "choices": [{{"message": {{"content": "{text}"}}, "finish_reason": "stop"}}]}}'.encode()
    )


def test_it_counts_the_tokens_of_a_text_alone(path):
    tokenizer = Tokenizer(path)
    assert tokenizer.count("one two three, four five six") == 7
    assert tokenizer.count("") == 0
    assert tokenizer.count("a lone \ud800 surrogate") == 4
    assert tokenizer.rate(["one two", "", "three"]) == 3 / 12
    assert tokenizer.rate(["", "  "]) is None


def test_a_plan_counts_with_it(path, tmp_path):
    file = write_cases(tmp_path / "cases.jsonl", 2, n=4)
    plain, counted = (
        json.loads(command("plan", file, "--strategy", "caps", "--json", *more).stdout)
        for more in ([], ["--set", f"tokenizer={path}"])
    )
    assert plain != counted
    shown = command("plan", file, "--strategy", "caps", "--set", f"tokenizer={path}")
    assert "tokenizer.json counts" in " ".join((shown.stdout + shown.stderr).split()), shown
    refused = command("plan", "-", "--set", f"tokenizer={path}", "--strategy", "caps")
    assert "needs a file of cases" in refused.stderr


def test_usage_that_a_server_does_not_report_is_counted_with_it(path):
    case = cases(1)[0]
    with ScriptedEndpoint(without_usage) as server:
        where = {"model": "stub", "base_url": server.url, "strategy": "knockout"}
        guessed = caps.select_sync(case, **where)
        counted = caps.select_sync(case, tokenizer=path, **where)
        prompts = [body["messages"][0]["content"] for body in server.bodies]
    own = Tokenizer(path)
    calls = sum(counted.ledger.calls.values())
    assert counted.tokens == sum(map(own.count, prompts[-calls:]))
    assert counted.tokens != guessed.tokens
    assert counted.ledger.estimated  # no tokenizer knows the server's chat template


def test_usage_that_a_server_reports_stays(path):
    case = cases(1)[0]
    with ScriptedEndpoint(better_quality_wins) as server:
        where = {"model": "stub", "base_url": server.url}
        assert (
            caps.select_sync(case, tokenizer=path, **where).tokens == caps.select_sync(case, **where).tokens
        )


def test_replies_kept_before_are_counted_with_it_too(path, tmp_path):
    case = cases(1)[0]
    with ScriptedEndpoint(without_usage) as server:
        where = {"model": "stub", "base_url": server.url, "journal": tmp_path / "journal.sqlite"}
        caps.select_sync(case, **where)
        asked = server.requests
        again = caps.select_sync(case, tokenizer=path, **where)
        assert server.requests == asked
        fresh = caps.select_sync(case, tokenizer=path, **{**where, "journal": None})
    assert again.tokens == fresh.tokens


def test_a_file_that_is_no_tokenizer_is_refused_before_anything_is_asked(tmp_path):
    (tmp_path / "no.json").write_text('{"model": 1}')
    with ScriptedEndpoint(better_quality_wins) as server:
        where = {"model": "stub", "base_url": server.url}
        with pytest.raises(caps.SettingError, match=r"no\.json: is not a tokenizer\.json"):
            caps.select_sync(cases(1)[0], tokenizer=tmp_path / "no.json", **where)
        with pytest.raises(caps.UserError, match="missing"):
            caps.select_sync(cases(1)[0], tokenizer=tmp_path / "missing.json", **where)
        assert server.requests == 0


def test_without_the_package_the_error_names_the_extra(path):
    words = f"""
import sys
sys.modules["tokenizers"] = None
import caps
try:
    caps.select_sync(caps.Case.of("?", ["a", "b"]), model="m", base_url="http://127.0.0.1:9/v1", tokenizer={str(path)!r})
except caps.MissingExtraError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", words], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert "pip install 'caps-select[tokenizers]'" in done.stdout
