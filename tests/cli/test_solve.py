import asyncio
import json

import pytest

from caps import Case, solve, solve_sync
from caps.core.errors import CapsError
from caps.journal.store import Journal
from caps.testing import Reply, ScriptedEndpoint, Status, better_quality_wins
from support.generating import answering
from support.shell import caps


@pytest.fixture
def server():
    with ScriptedEndpoint(answering) as running:
        yield running


def test_the_answer_comes_first_and_what_it_took_goes_to_standard_error(tmp_path):
    with ScriptedEndpoint(answering) as running:
        where = ("--base-url", running.url, "--model", "m", "--journal", tmp_path / "j.sqlite")
        done = caps("solve", "What is it?", "-n", 4, "--domain", "math", *where)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "I take quality=0.9, so \\boxed{1}\n\nanswer: 1\n"
        assert "answer 2 of 4 candidates, 4 distinct" in done.stderr
        asked = running.requests
        (tmp_path / "q.txt").write_text("What is it?")
        again = caps("solve", "--file", tmp_path / "q.txt", "-n", 4, "--domain", "math", "--json", *where)
        assert running.requests == asked, "the journal knows it all"
    line = json.loads(again.stdout)
    assert line["winner"] == 1
    assert len(line["candidates"]) == 4
    assert line["sampling"]["replayed"] == 4
    assert line["tokens"]["billed"] == 0


def test_where_all_answers_agree_no_judge_is_asked(invoke, tmp_path):
    with ScriptedEndpoint(
        [Reply("Surely \\boxed{4}", message={"reasoning_content": "hm, \\boxed{5}?"})]
    ) as agreed:
        done = invoke(
            "solve", "-", "--samples", 3, "--base-url", agreed.url, "--judge-model", "j", stdin="2 + 2?"
        )
        assert agreed.requests == 3
    assert done.exit_code == 0
    assert done.stdout == "Surely \\boxed{4}\n\nanswer: 4\n", "without its thoughts"
    assert "guessed the domain: math" in done.stderr


def test_another_model_may_judge_and_its_address_gets_no_key_of_the_first(invoke, server):
    with ScriptedEndpoint(answering) as judge:
        done = invoke(
            "solve", "What is it?", "-n", 4, "--domain", "math", "--judge-model", "j", "--judge-base-url", judge.url,
            "--api-key", "sk-mine", "--strategy", "caps-r", "--set", "finalists=2", "--set", "temperature_math=0.2", "--quiet",
        )  # fmt: skip
        assert {body["model"] for body in judge.bodies} == {"j"}
        assert all("Authorization" not in headers for headers in judge.headers)
    assert (done.exit_code, done.stderr) == (0, "")
    assert server.requests == 4
    assert {body["temperature"] for body in server.bodies} == {0.2}
    assert all(headers["Authorization"] == "Bearer sk-mine" for headers in server.headers)


def test_a_question_without_an_answer_exits_1_and_a_missing_one_is_asked_for(invoke, tmp_path):
    with ScriptedEndpoint([Status(400, "never")]) as silent:
        done = invoke("solve", "What?", "-n", 2, "--base-url", silent.url)
    assert done.exit_code == 1
    assert "none of its 2 samples succeeded" in done.stderr
    for words, said in [
        ([], "give one question"),
        (["a", "--file", "b"], "give one question"),
        (["--file", tmp_path / "none.txt"], "none.txt: No such file"),
        ([" "], "the question is empty"),
        (["a", "--domain", "art"], "--domain 'art'"),
    ]:
        with pytest.raises(CapsError, match=said):
            invoke("solve", *words)


def test_from_python_a_question_is_drawn_for_and_chosen_among():
    with ScriptedEndpoint(answering) as running:
        found = solve_sync("What is it?", n=4, domain="math", model="m", base_url=running.url)
        assert (found.answer, found.selected.winner, len(found.case.candidates)) == ("1", 1, 4)
        one = asyncio.run(
            solve(Case.of("What is it?", []), n=1, model="m", base_url=running.url, preset="small")
        )
        assert one.text.startswith("I take quality=0.2")
    with (
        ScriptedEndpoint([Status(400, "no")]) as silent,
        pytest.raises(CapsError, match="none of its 2 samples"),
    ):
        solve_sync("What?", n=2, model="m", base_url=silent.url)


def test_auto_generates_as_many_as_it_needs_and_keeps_the_story_for_the_report(invoke, tmp_path):
    with ScriptedEndpoint([Reply("Surely \\boxed{4}")]) as agreed:
        words = ("solve", "2 + 2?", "--n", "auto", "--domain", "math", "--base-url", agreed.url)
        done = invoke(*words, "--json", "--out", tmp_path / "run", "--price-input", 1, "--price-output", 4)
        assert done.exit_code == 0
        line = json.loads(done.stdout)
        (generator,) = line["generators"]
        # On a slow machine a sample may be late, so that another is generated.
        ended = generator["samples"] - generator["cancelled"]
        assert agreed.requests == generator["samples"]
        assert ended == len(line["written_by"]) <= 4
        assert line["model"] == "stub"
        assert line["story"][-1]["probability"] == line["probability"] == 0.85
        assert line["fixed_16"]["output"] == 16 * 4
        asked = agreed.requests
        again = invoke(*words)
        assert agreed.requests == asked, "the journal knows it all"
    assert "16 samples would have written about" in again.stderr
    page = caps("report", tmp_path / "run", "--case", 1, "-o", tmp_path / "page.html")
    assert page.returncode == 0, page.stderr
    assert "<h2>Timeline" in (tmp_path / "page.html").read_text()


def test_a_folder_of_others_is_refused_before_anything_is_generated(invoke, server, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("Dear caps")
    done = caps("solve", "2 + 2?", "--model", "stub", "--base-url", server.url, "--out", tmp_path / "mine")
    assert done.returncode == 2
    assert "holds 'letter.txt', which caps did not write" in done.stderr
    assert not any("2 + 2?" in str(body) for body in server.bodies)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letter.txt"]


def test_a_run_with_auto_replays_without_a_server_but_not_without_its_journal(invoke, tmp_path):
    def dear(body, number=0):
        """Two answers, each as often as the other and of many words, so that a verdict is worth its price."""
        if "BEGIN CANDIDATE" in body["messages"][0]["content"]:
            return better_quality_wins(body)
        side = body["seed"] % 2
        return Reply(f"{'word ' * 3000} quality={side / 2}, so \\boxed{{{side}}}")

    with ScriptedEndpoint(dear) as running:
        words = ("--n", "auto", "--max-n", 5, "--base-url", running.url, "--domain", "math", "--json")
        files = ("--out", tmp_path / "run", "--journal", tmp_path / "j")
        done = invoke("solve", "What is it?", *words, *files, "--price-input", 1, "--price-output", 4)
        assert done.exit_code == 0, done.stderr
    line = json.loads(done.stdout)
    assert line["calls"]["E1"] + line["calls"]["E2"] > 0, "the judge was asked, too"
    again = caps("replay", tmp_path / "run")
    assert again.returncode == 0, again.stderr
    assert "1 case replayed without a call, as in the run" in again.stderr
    replayed = json.loads(again.stdout)
    for name in ("order", "written_by", "calls", "probability", "clusters"):
        assert replayed[name] == line[name]
    other = caps("replay", tmp_path / "run", "--strategy", "majority")
    assert json.loads(other.stdout)["strategy"] == "majority"
    assert "run the same caps solve command" in caps("replay", tmp_path / "run", "--ask").stderr
    for path in tmp_path.glob("j*"):
        path.unlink()
    with Journal.open(tmp_path / "j"):
        pass
    lost = caps("replay", tmp_path / "run")
    assert lost.returncode == 2
    assert "no reply to this" in lost.stderr
    assert "cannot be replayed" in lost.stderr


def test_generators_may_stand_in_a_settings_file(invoke, tmp_path):
    with ScriptedEndpoint([Reply("Surely \\boxed{4}")]) as agreed:
        (tmp_path / "team.toml").write_text(
            '[[generator]]\nmodel = "small"\nquality = 0.5\n\n[[generator]]\nmodel = "large"\npreset = "small"\n'
        )
        words = ("--n", "auto", "--base-url", agreed.url, "--json")
        done = invoke("solve", "2 + 2?", *words, "--config", tmp_path / "team.toml")
        assert {body["model"] for body in agreed.bodies} == {"large"}
        named = invoke("solve", "3 + 1?", *words, "--generator", "a", "--generator", "b")
    assert [one["model"] for one in json.loads(done.stdout)["generators"]] == ["small", "large"]
    assert [one["model"] for one in json.loads(named.stdout)["generators"]] == ["a", "b"]
    (tmp_path / "wrong.toml").write_text('[[generator]]\nmodel = "m"\ncolour = "red"\n')
    with pytest.raises(CapsError, match="generator 1: colour: no such key"):
        invoke("solve", "2 + 2?", "--n", "auto", "--config", tmp_path / "wrong.toml")
