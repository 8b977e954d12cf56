"""What the Python API logs, and what its errors say about servers and functions that fail."""

import asyncio
import logging
import traceback

import pytest

import caps
from caps.testing import Reply, ScriptedEndpoint, Status, better_quality_wins, cases

SECRET = "sk-a-key-of-many-letters"
PHRASE = "quality="  # in every candidate of `cases`


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    for name in ("CAPS_MODEL", "CAPS_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def messages(caplog, level):
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_a_run_its_guesses_and_costs_are_logged_and_no_texts_or_keys(caplog):
    caplog.set_level(logging.DEBUG, logger="caps")
    problems = [
        {"problem": "the-words-of-a-problem?", "candidates": [f"quality={q}", "quality=0.2"]}
        for q in (0.1, 0.9)
    ]
    with ScriptedEndpoint(better_quality_wins) as server:
        results = caps.select_many_sync(
            problems, model="stub", base_url=server.url, api_key=SECRET, price_input=1.0, price_output=2.0
        )
    assert all(
        record.name.partition(".")[0] == "caps" for record in caplog.records if "asyncio" not in record.name
    )
    said = messages(caplog, logging.INFO)
    assert f"strategy posterior, judge stub at {server.url}" in said
    assert sum("guessed the domain" in line for line in said) == 1
    (costs,) = [line for line in said if line.startswith("2 cases (0 failed, 0 provisional)")]
    assert f"{sum(result.tokens for result in results)} tokens read" in costs
    assert f"${sum(result.usd for result in results):.4f}" in costs
    debugged = messages(caplog, logging.DEBUG)
    assert sum(line.startswith("case '1': candidate") for line in debugged) == 1
    assert any(line.startswith(f"{server.url} answered in") for line in debugged)
    for text in (SECRET, "the-words-of-a-problem", PHRASE):
        assert text not in caplog.text


def test_retries_are_logged_without_what_the_server_says(caplog):
    caplog.set_level(logging.INFO, logger="caps")

    def answer(body, number):
        echo = {"error": {"message": f"overloaded by {body['messages'][0]['content']}"}}
        return better_quality_wins(body, number) if number else Status(503, echo, {"Retry-After": "0"})

    with ScriptedEndpoint(answer) as server:
        caps.select_sync(cases(1)[0], model="stub", base_url=server.url)
        assert any(
            line.startswith(f"{server.url}: BusyError; the call is made again in")
            for line in messages(caplog, logging.INFO)
        )
    assert PHRASE not in caplog.text


def test_a_case_that_the_server_failed_names_its_address():
    def answer(body, number):
        return (
            better_quality_wins(body, number) if "case 0" in str(body) else Status(400, "this one is refused")
        )

    made = [
        {"problem": f"of case {number}?", "candidates": ["quality=0.1", "quality=0.2"]} for number in range(2)
    ]
    with ScriptedEndpoint(answer) as server:
        first, second = caps.select_many_sync(made, model="stub", base_url=server.url)
    assert first.error is None
    assert f"The last error: {server.url} refused the request" in second.error
    assert second.to_dict()["error"] == second.error


def broken_judge(problem, a, b):
    return {}[problem]


def test_the_exception_of_a_judge_function_keeps_its_traceback(caplog):
    caplog.set_level(logging.DEBUG, logger="caps")
    with pytest.raises(caps.CapsError, match="KeyError") as raised:
        caps.select_sync(cases(1)[0], judge=broken_judge)
    shown = "".join(traceback.format_exception(raised.value))
    assert "in broken_judge" in shown
    assert isinstance(raised.value.__cause__, KeyError)
    (warned, *others) = [record for record in caplog.records if "broken_judge" in record.getMessage()]
    assert warned.levelno == logging.WARNING
    assert "in broken_judge" in caplog.handler.format(warned)
    assert all(record.levelno == logging.DEBUG for record in others)


@pytest.mark.parametrize(
    ("candidates", "keywords"),
    [
        (["only one"], {}),
        (["the same", "the same"], {}),
        ([r"\boxed{2}", r"so it is \boxed{2}"], {}),
        (["a", "b", "b"], {"strategy": "majority"}),
        (["the same", "the same"], {"model": "m"}),
    ],
)
def test_where_nothing_is_asked_no_endpoint_is_needed(candidates, keywords):
    best = caps.best_sync("?", candidates, **keywords)
    assert best.text in candidates
    assert best.tokens == 0
    assert caps.select_sync({"problem": "?", "candidates": candidates}, **keywords).tokens == 0


def test_where_a_judge_is_asked_a_missing_endpoint_is_named_by_keywords():
    with pytest.raises(caps.SettingError, match='give base_url="http://localhost:8000/v1"'):
        caps.best_sync("?", ["a", "b"])
    with pytest.raises(caps.SettingError, match='or model="embedded"'):
        caps.best_sync("?", ["a", "b"], model="m")

    async def opened():
        async with caps.open():
            pass

    with pytest.raises(caps.SettingError, match="no endpoint"):  # a program that serves should not start
        asyncio.run(opened())


def test_a_function_that_returns_nonsense_is_logged_by_the_kind_of_fault_only(caplog):
    caplog.set_level(logging.DEBUG, logger="caps")
    with pytest.raises(caps.CapsError, match="malformed"):
        caps.select_sync(cases(1)[0], judge=lambda *texts: texts[1])
    assert "unanswered: malformed" in caplog.text
    assert PHRASE not in caplog.text


def test_a_solved_question_is_logged_too(caplog):
    caplog.set_level(logging.INFO, logger="caps")
    with ScriptedEndpoint([Reply(r"\boxed{2}")]) as server:
        caps.solve_sync("1 + 1?", n=2, model="m", base_url=server.url)
    assert any(line.startswith("1 case (0 failed") for line in messages(caplog, logging.INFO))
