"""The Python API over many cases: keywords, environment, results as data, and wrong use."""

import asyncio
import inspect
import json
from contextlib import aclosing
from html.parser import HTMLParser
from itertools import count

import pytest

import caps
from caps.testing import ScriptedEndpoint, Status, better_quality_wins, cases, judge_by_quality, write_cases
from support.shell import caps as command
from support.shell import json_lines, read_lines

VARIABLES = ("CAPS_MODEL", "CAPS_BASE_URL", "OPENAI_BASE_URL", "CAPS_API_KEY", "OPENAI_API_KEY")
TEXTS = ["quality=0.1 \\boxed{1}", "quality=0.9 \\boxed{2}", "quality=0.5 \\boxed{3}"]


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server():
    with ScriptedEndpoint(better_quality_wins) as running:
        yield running


def winners(results):
    return [one.winner for one in results]


def right_ones(made):
    return [[one.correct for one in case.candidates].index(True) for case in made]


# One case


def test_the_best_of_plain_texts(server):
    best = caps.best_sync(
        "What is it?", TEXTS, model="stub", base_url=server.url, price_input=1, price_output=1
    )
    assert (best.winner, best.text, best.answer, best.error) == (1, TEXTS[1], "2", None)
    assert 0 < best.probability <= 1
    assert best.tokens > 0
    assert best.usd > 0
    assert best.order[0] == best.selection.winner == 1


async def test_best_is_async_under_its_plain_name_and_takes_a_strategy_object():
    best = await caps.best("What is it?", TEXTS, judge=judge_by_quality, strategy=caps.Caps(finalists=2))
    assert (best.winner, len(best.selection.finalists)) == (1, 2)


@pytest.mark.parametrize(
    ("candidates", "words"),
    [("one text", "not one text"), ([], "is empty"), ([1, 2], "must be texts, not int")],
)
def test_candidates_that_are_not_texts_are_refused(candidates, words):
    with pytest.raises(caps.InputError, match=words):
        caps.best_sync("What is it?", candidates, judge=judge_by_quality)


def test_a_case_may_be_a_mapping_as_in_a_file():
    row = {"id": "sum", "problem": "What is it?", "candidates": TEXTS}
    assert caps.select_sync(row, judge=judge_by_quality).id == "sum"


# Keywords


@pytest.mark.parametrize(
    "function",
    [caps.select, caps.select_sync, caps.best, caps.best_sync, caps.select_many, caps.select_many_sync, caps.stream, caps.solve, caps.solve_sync, caps.open],
)  # fmt: skip
def test_every_function_spells_out_its_keywords(function):
    shown = inspect.signature(function).parameters
    assert all(one.kind is not inspect.Parameter.VAR_KEYWORD for one in shown.values())
    assert shown["model"].default is None
    assert shown["strategy"].default == "posterior"
    assert shown["seed"].default == 1234


def test_a_misspelt_keyword_is_refused_with_the_nearest_match():
    with pytest.raises(TypeError, match="unexpected keyword 'stratgy': did you mean 'strategy'"):
        caps.select_sync(cases(1)[0], judge=judge_by_quality, stratgy="caps")
    with pytest.raises(TypeError, match="budget_total_usd"):
        caps.best_sync("?", TEXTS, judge=judge_by_quality, budget_total_usd=1)


def test_the_environment_of_the_command_line_is_honoured_and_keywords_win(server, monkeypatch):
    monkeypatch.setenv("CAPS_MODEL", "stub")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("CAPS_API_KEY", "key of the environment")
    monkeypatch.setenv("CAPS_STRATEGY", "knockout")
    monkeypatch.setenv("CAPS_SEED", "7")
    line = caps.best_sync("?", TEXTS).to_dict()
    assert (line["strategy"], line["seed"]) == ("knockout", 7)
    assert server.headers[-1]["Authorization"] == "Bearer key of the environment"
    assert caps.best_sync("?", TEXTS, strategy="caps").to_dict()["strategy"] == "caps"
    caps.best_sync("?", TEXTS, api_key="")
    assert "Authorization" not in server.headers[-1]
    monkeypatch.setenv("CAPS_SEED", "seven")
    with pytest.raises(caps.SettingError, match="CAPS_SEED = 'seven': must be a whole number"):
        caps.best_sync("?", TEXTS)


def test_an_unknown_strategy_is_refused_before_anything_is_asked(server):
    with pytest.raises(caps.SettingError, match="posteriour"):
        caps.select_many_sync(cases(2), model="stub", base_url=server.url, strategy="posteriour")
    assert server.requests == 0


# Many cases


def test_results_stand_in_the_order_of_the_cases_also_inside_a_running_loop(server):
    made = cases(12)
    assert winners(caps.select_many_sync(made, model="stub", base_url=server.url)) == right_ones(made)

    async def notebook():
        return caps.select_many_sync(iter(made), model="stub", base_url=server.url)

    assert winners(asyncio.run(notebook())) == right_ones(made)


def test_many_cases_choose_as_caps_select_does_and_their_dictionaries_are_its_lines(server, tmp_path):
    path = write_cases(tmp_path / "cases.jsonl", 3, n=6)
    where = {"model": "stub", "base_url": server.url}
    done = command(
        "select", path, "--model", "stub", "--base-url", server.url, "--no-journal", "--json", "--quiet"
    )
    rows = read_lines(path)
    results = caps.select_many_sync(rows, **where)
    assert json.loads(json.dumps([one.to_dict() for one in results])) == json_lines(done)


def test_a_case_that_cannot_be_read_is_a_result_with_an_error():
    made = cases(2)
    results = caps.select_many_sync([made[0], {"problem": "?"}, "text", made[1]], judge=judge_by_quality)
    assert [one.error is None for one in results] == [True, False, False, True]
    assert "case 2: candidates" in results[1].error
    assert "not str" in results[2].error
    bad = results[1]
    assert (bad.winner, bad.text, bad.order, bad.selection) == (None, "", (), None)
    assert results[1].to_dict() == {"id": "unreadable case 2", "error": results[1].error}


def breaking_off(made):
    yield from made
    raise ValueError("the file was cut")


async def test_a_stream_raises_what_the_generator_of_cases_raises_after_all_results():
    made, names = cases(5), []
    with pytest.raises(ValueError, match="the file was cut"):  # noqa: PT012
        async for result in caps.stream(breaking_off(made), judge=judge_by_quality):
            names.append(result.id)
    assert sorted(names) == [case.id for case in made]


async def test_a_stream_may_have_no_end_and_be_closed_early():
    forever = (case for _ in count() for case in cases(3))
    async with aclosing(caps.stream(forever, judge=judge_by_quality)) as results:
        assert [(await anext(results)).error for _ in range(20)] == [None] * 20


def test_something_else_than_several_cases_is_refused():
    for wrong in ("cases.jsonl", cases(1)[0], {"problem": "?"}):
        with pytest.raises(caps.InputError, match="several cases"):
            caps.select_many_sync(wrong, judge=judge_by_quality)
    assert caps.select_many_sync([], judge=judge_by_quality) == []


def test_a_key_that_is_refused_is_raised_and_one_refused_later_loses_no_result():
    made = cases(6)
    where = {"model": "stub", "max_connections": 1}
    with ScriptedEndpoint(lambda *_: Status(401, "no")) as server, pytest.raises(caps.ModelError):
        caps.select_many_sync(made, base_url=server.url, **where)
    ends = 40

    def then_refused(body, number):
        return better_quality_wins(body) if number < ends else Status(401, "no")

    with ScriptedEndpoint(then_refused) as server:
        results = caps.select_many_sync(iter(made), base_url=server.url, **where)
    assert len(results) == len(made)
    assert results[0].error is None
    assert "401" in results[-1].error
    assert results[-1].id == made[-1].id


def test_the_total_budget_is_shared_by_all_cases(server):
    where = {"model": "stub", "base_url": server.url, "price_input": 1000.0, "price_output": 1000.0}
    results = caps.select_many_sync(cases(6), budget_total_usd=8.0, **where)
    assert sum(one.usd for one in results) <= 8
    assert any(one.selection.provisional for one in results)


def test_cases_of_a_call_share_the_journal(server, tmp_path):
    where = {"model": "stub", "base_url": server.url, "journal": tmp_path / "journal.sqlite"}
    first = caps.select_many_sync(cases(4), **where)
    asked = server.requests
    again = caps.select_many_sync(cases(4), **where)
    assert (winners(again), server.requests) == (winners(first), asked)
    assert sum(one.ledger.total().billed for one in again) == 0


def test_progress_is_shown_on_standard_error(capfd):
    caps.select_many_sync(cases(3), judge=judge_by_quality, progress=True)
    shown = capfd.readouterr()
    assert "3/3" in shown.err
    assert shown.out == ""


# Results as data


def test_rows_are_flat_and_have_the_same_columns():
    results = caps.select_many_sync([cases(1)[0], {"problem": "?"}], judge=judge_by_quality)
    good, bad = caps.rows(results)
    assert good.keys() == bad.keys()
    assert all(value is None or isinstance(value, str | int | float | bool) for value in good.values())
    assert (good["error"], bad["winner"]) == (None, None)
    assert good["candidates"] == 8


def test_a_run_folder_is_read_back(server, tmp_path):
    path, out = write_cases(tmp_path / "cases.jsonl", 3, n=6), tmp_path / "run"
    path.write_text(path.read_text() + '{"id": "bad"}\n')
    where = f"--model stub --base-url {server.url} --journal"
    command("select", path, where, tmp_path / "j.sqlite", "--out", out)
    run = caps.load_run(out)
    assert (run.config.strategy, run.config.model) == ("posterior", "stub")
    written = read_lines(out / "selections.jsonl")
    assert [one.to_dict() for one in run.results] == written
    assert [one.error is None for one in run.results] == [True, True, True, False]
    fresh = caps.select_many_sync(
        [json.loads(line) for line in path.read_text().splitlines()[:3]], model="stub", base_url=server.url
    )
    for loaded, made in zip(run.results[:3], fresh, strict=True):
        for name in ("winner", "text", "answer", "order", "tokens"):
            assert getattr(loaded, name) == getattr(made, name)
        assert loaded.ledger.calls == made.ledger.calls
        assert loaded.probability == pytest.approx(made.probability, abs=1e-4)
    assert caps.rows(run.results)[0]["tokens"] == fresh[0].tokens


def test_a_folder_that_holds_no_run_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(caps.InputError):
            caps.load_run(folder)


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen, self.attributes = set(), []

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.attributes += attrs


HOSTILE = [
    "<script>alert(1)</script>",
    "</pre><img src=x onerror=alert(1)>",
    "'><svg onload='alert(1)'>",
    '"><iframe src="javascript:alert(1)">',
    "</code></div><style>*{display:none}</style>",
    "\x1b]0;title\x07\u202etxt",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_harmless_in_a_notebook(text):
    case = caps.Case.of("?", [f"{text} \\boxed{{{text}}}", "other"], name=text)
    result = caps.select_sync(case, judge=lambda _, a, __: "A" if text in a else "B")
    failed = caps.select_many_sync([case], judge=lambda *_: text)[0]
    assert failed.error is not None
    for one in (result, failed):
        page, tags = one._repr_html_(), Tags()
        tags.feed(page)
        assert tags.seen <= {"div", "b", "pre", "code", "svg", "title", "rect", "text"}
        assert not [name for name, _ in tags.attributes if name.startswith("on") or name in ("src", "href")]
        assert not set(page) & {"\x1b", "\x07", "\u202e"}


def test_a_notebook_shows_answer_probability_and_a_picture_of_the_scores():
    page = caps.best_sync("What is it?", TEXTS, judge=judge_by_quality)._repr_html_()
    assert "answer: <code>2</code>" in page
    assert "probability 0." in page or "probability 1." in page
    assert page.count("<rect") == 3


@pytest.mark.parametrize("strategy", ["caps", "posterior", "knockout", "round-robin", "v1-infer", "majority"])
def test_a_receipt_is_drawn_for_any_strategy(strategy):
    result = caps.select_sync(cases(1)[0], judge=judge_by_quality, strategy=strategy)
    receipt = result.receipt()
    assert str(receipt).startswith("case case 0: candidate")
    tags = Tags()
    tags.feed(receipt._repr_html_())
    assert tags.seen <= {"div", "b", "pre", "span"}
    assert str(result.winner) in str(receipt).partition("\n")[2]


def test_a_result_without_a_contest_has_no_receipt():
    failed = caps.select_many_sync([{"problem": "?"}], judge=judge_by_quality)[0]
    with pytest.raises(caps.InputError, match="candidates"):
        failed.receipt()


# Two lists of results


def worse(problem, a, b):
    return {"A": "B", "B": "A", "TIE": "TIE"}[judge_by_quality(problem, a, b)]


worse.full_views = True


def test_results_are_compared_case_by_case_with_intervals():
    made = cases(20)
    good, bad = (caps.select_many_sync(made, judge=judge) for judge in (judge_by_quality, worse))
    compared = caps.compare_results(bad, good)
    assert (compared.cases, compared.different, compared.labelled) == (20, 20, 20)
    assert compared.correct == (0, 1)
    assert compared.gain == (1, 1, 1)
    assert compared.p_value < 1e-4
    assert "a difference of +100.0 points" in str(compared)
    same = caps.compare_results(good, good)
    assert (same.different, same.gain, same.p_value) == (0, (0, 0, 0), 1)
    own = caps.compare_results(bad, good, correct=lambda one: one.answer == "0")
    assert own.gain != compared.gain


def test_the_same_answer_of_another_candidate_is_no_other_answer():
    made = [caps.Case.of("?", [r"So \boxed{1/2}.", r"It is \boxed{0.5}.", r"No: \boxed{7}."], domain="math")]

    def results(mark):
        judge = lambda _problem, a, _b: "A" if mark in a else "B"  # noqa: E731
        return caps.select_many_sync(made, judge=judge, strategy="round-robin", hard_evidence="off")

    first, second, other = map(results, ("So", "It is", "No"))
    assert [found[0].winner for found in (first, second, other)] == [0, 1, 2]
    assert caps.compare_results(first, second).different == 0
    assert caps.compare_results(first, other).different == 1


def test_tokens_are_compared_as_a_ratio(server):
    where = {"model": "stub", "base_url": server.url}
    usual = caps.select_many_sync(cases(6), **where)
    all_pairs = caps.select_many_sync(cases(6), strategy="round-robin", **where)
    ratio = caps.compare_results(usual, all_pairs).token_ratio
    assert 1 < ratio.low <= ratio.value <= ratio.high
    assert ratio.value == sum(one.tokens for one in all_pairs) / sum(one.tokens for one in usual)


def test_a_case_that_failed_counts_as_wrong_and_one_without_labels_does_not_count():
    labelled, bare = cases(2)[:1], caps.Case.of("?", ["quality=0.1 ", "quality=0.2 "], name="bare")
    good = caps.select_many_sync([*labelled, bare], judge=judge_by_quality)
    bad = caps.select_many_sync([*labelled, bare], judge=lambda *_: "nonsense")
    compared = caps.compare_results(bad, good)
    assert (compared.labelled, compared.correct) == (1, (0, 1))
    nobody_knows = caps.compare_results(good[1:], good[1:])
    assert (nobody_knows.labelled, nobody_knows.correct, nobody_knows.gain) == (0, None, None)
    assert "right" not in str(nobody_knows)


def test_lists_of_different_cases_are_not_compared():
    results = caps.select_many_sync(cases(3), judge=judge_by_quality)
    for first, second, words in (
        (results, results[:2], "case 2"),
        (results[:1] * 2, results[:1], "two results of case 'case 0'"),
        ([], [], "nothing to compare"),
    ):
        with pytest.raises(caps.InputError, match=words):
            caps.compare_results(first, second)
