"""Studies: what is finished is skipped, whatever became of the process or its files; tables come out the same."""

import json
import os
import random
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

import caps.studies as caps_studies
from caps.reports.page import page_html
from caps.reports.pictures import svg_text
from caps.reports.study import Chapter, comma_separated, markdown, study_page, table_picture
from caps.studies.bench import Bench
from caps.studies.results import ResultFile
from caps.studies.study import load_study
from caps.studies.suites import shards_of
from caps.studies.tables import make_table
from caps.testing import Reply, ScriptedEndpoint, Status, better_quality_wins, write_cases
from support.shell import CAPS, caps, split_words, start
from support.waiting import wait_until

STUDIES = Path(__file__).parents[2] / "studies"
PAPER = Path(caps_studies.__file__).parent / "paper"
STUDY = """
title = "A study"
seeds = [1, 2]
reference = "V1"
suites = [
  { name = "made up", n = 8, simulated = { problems = 12, kind = "math" } },
  { name = "of code", n = 16, problems = 30, simulated = { problems = 12 } },
]
strategies = [{ name = "V1", use = "v1-infer" }, { name = "CAPS", use = "caps-r" }, { name = "Core", use = "caps" }]
[[tables]]
name = "all"
title = "Everything | 100 %"
metrics = ["pass_at_n", "pass_at_1", "token_share", "closed_share", "gain", "mcnemar", "accuracy"]
average = true
published = { "of code" = { "CAPS Pass@1" = 46.5 } }
"""


def run(tmp_path, text=STUDY, folder="out", **play):
    path = tmp_path / "study.toml"
    path.write_text(text)
    study = load_study(path)
    played = []
    with Bench(
        shards_of(study, limit=None, resolve_for=None, skipped=pytest.fail), tmp_path / folder
    ) as bench:
        bench.play(**{"limit": None, "processes": 1, "hear": played.append, **play})
        (table,) = (make_table(study, spec, bench.book()) for spec in study.tables)
    return table, sum(played)


def test_a_study_run_again_plays_nothing_and_says_the_same(tmp_path):
    table, played = run(tmp_path)
    assert played == 2 * 12 * 3 * 2
    assert run(tmp_path) == (table, 0)


def test_results_cut_off_or_damaged_anywhere_are_played_again_to_the_same_tables(tmp_path):
    table, _ = run(tmp_path)
    path, chance = tmp_path / "out" / "results" / "of-code.jsonl", random.Random(3)
    whole = path.read_bytes()
    for _ in range(4):
        cut = chance.randrange(len(whole))
        path.write_bytes(whole[:cut])
        missing = 72 - whole[:cut].count(b"\n")
        assert run(tmp_path) == (table, missing)
        assert sorted(path.read_bytes().splitlines()) == sorted(whole.splitlines())
    path.write_bytes(whole.replace(b'"winner"', b'"loser"', 1))
    assert ResultFile(path).unreadable == 1
    assert run(tmp_path) == (table, 1)


def test_a_changed_setting_plays_its_own_results_again_and_no_others(tmp_path):
    run(tmp_path)
    _, played = run(tmp_path, STUDY.replace('use = "caps" }', 'use = "caps", set = { finalists = 2 } }'))
    assert played == 2 * 12 * 2
    _, played = run(tmp_path, STUDY.replace('kind = "math"', 'kind = "math", accuracy = 0.6'))
    assert played == 12 * 3 * 2


def test_measured_token_shares_meet_the_closed_form(tmp_path):
    table, _ = run(tmp_path)
    for _, cells in table.rows[:2]:
        found = dict(zip(table.heads, cells, strict=True))
        for name in ("CAPS", "Core"):
            shares = [found[f"{name} {head}"].figure.value for head in ("T%", "T% (Eq. 6)")]
            assert shares[0] == pytest.approx(shares[1], abs=1e-12)


ALL_SUITES = (
    STUDY[: STUDY.index("[[tables]]")]
    + """
[[tables]]
name = "cost"
title = "Cost"
down = "methods"
across = "ACROSS"
metrics = ["tokens"]
"""
)


def test_a_table_of_strategies_covers_all_suites(tmp_path):
    together, _ = run(tmp_path, ALL_SUITES.replace("ACROSS", "nothing"))
    apart, _ = run(tmp_path, ALL_SUITES.replace("ACROSS", "suites"))
    for (name, (whole,)), (other, parts) in zip(together.rows, apart.rows, strict=True):
        assert name == other
        assert whole.figure.value == pytest.approx(sum(part.figure.value for part in parts))


def test_strata_are_those_of_all_suites(tmp_path):
    levels = ("easy", "hard")
    suites = [
        f'{{ name = "{level}", n = 4, simulated = {{ problems = 6, strata = [{{ difficulty = "{level}", problems = 6 }}] }} }}'
        for level in levels
    ]
    text = ALL_SUITES.replace("ACROSS", "strata")
    start, end = text.index("suites = ["), text.index("strategies = [")
    table, _ = run(tmp_path, f"{text[:start]}suites = [{', '.join(suites)}]\n{text[end:]}")
    assert table.heads == ("easy", "hard", "overall")


def test_without_a_reference_the_token_share_is_of_the_baseline(tmp_path):
    text = STUDY.replace('reference = "V1"\n', "").replace(', "gain", "mcnemar", "accuracy"', "")
    table, _ = run(tmp_path, text)
    shares = [dict(zip(table.heads, cells, strict=True))["V1 T%"] for _, cells in table.rows[:2]]
    assert [share.figure.value for share in shares] == pytest.approx([1, 1], rel=0.01)


def test_more_processes_change_nothing(tmp_path):
    path = tmp_path / "study.toml"
    text = STUDY.replace("problems = 12 }", "problems = 250 }").replace("v1-infer", "reward")
    path.write_text(
        text.replace("caps-r", "majority").replace('"caps"', '"vanilla"')
    )  # nobody asks: it is quick
    shards = shards_of(load_study(path), limit=None, resolve_for=None, skipped=pytest.fail)
    books = []
    for processes in (1, 2):
        with Bench(shards, tmp_path / str(processes)) as bench:
            bench.play(limit=None, processes=processes, hear=abs)
            books.append(bench.book())
    assert books[0] == books[1]


def test_tables_are_written_with_the_papers_figure_and_marked_where_it_cannot_be(tmp_path):
    table, _ = run(tmp_path)
    text = markdown(table, simulated="pools and verdicts")
    assert "(paper 46.5†)" in text
    assert "**Simulated** (pools and verdicts)" in text
    assert "- 1 problem = 8.3 points where there are 12 (made up, of code)" in text
    assert "V1 Δ" not in text
    rows = comma_separated(table, simulated="pools and verdicts").splitlines()
    assert rows[0].startswith("row,column,metric,ours,low,high,paper")
    assert any(",46.5,True,pools and verdicts" in row for row in rows)


def test_a_table_is_drawn_as_accuracy_against_cost_and_says_what_is_simulated(tmp_path):
    table, _ = run(
        tmp_path, STUDY.replace('name = "V1"', 'name = "V1 $x^_{-- <b>"').replace('"V1"', '"V1 $x^_{-- <b>"')
    )
    picture = table_picture(table, simulated="pools and verdicts")
    drawn = ElementTree.fromstring(svg_text(picture.drawing))
    words = [one.text for one in drawn.iter() if one.text]
    assert "Simulated (pools and verdicts), not measured." in words
    assert any("V1 $x^_{-- <b>" in one for one in words)


def test_the_page_of_a_study_has_every_table_with_its_chart(tmp_path):
    table, _ = run(tmp_path)
    chapter = Chapter("All", "What was measured.", "caps bench study.toml", [table], "pools and verdicts")
    shown = page_html(study_page(chapter))
    assert "caps bench study.toml" in shown
    assert shown.count("<svg") == 1
    assert "paper 46.5" in shown
    assert "Simulated (pools and verdicts)" in shown


def test_simulated_verdicts_are_for_labelled_cases_only(tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 3, n=4, difficulty="easy")
    text = STUDY.replace('{ problems = 12, kind = "math" }', "{ accuracy = 0.9 }").replace(
        "n = 8", 'cases = "cases.jsonl"'
    )
    _, played = run(tmp_path, text)
    assert played == (3 + 12) * 3 * 2
    cases.write_text(cases.read_text().replace('"correct": false', '"answer": "7"', 1))
    done = caps("bench", tmp_path / "study.toml", "--simulate", "--out", tmp_path / "new")
    assert done.returncode == 2
    assert "cases.jsonl: case 'case 0': candidates[0].correct: is missing" in done.stderr


LIVE = """
title = "Live"
seeds = [1, 2]
reference = "V1"
judge = { model = "nobody", max_connections = 4 }
suites = [{ name = "real", cases = "cases.jsonl", n = 8 }, { name = "absent", cases = "none.jsonl", get = "caps import" }]
strategies = [{ name = "V1", use = "v1-infer", set = { budget = 1.5 } }, { name = "CAPS", use = "caps-r" }, { name = "First", use = "vanilla" }]
tables = [{ name = "t", title = "t", suites = ["real"], metrics = ["pass_at_1", "tokens", "token_share", "malformed"] }]
"""


def test_a_live_study_killed_and_resumed_pays_nothing_twice(tmp_path):
    (tmp_path / "study.toml").write_text(LIVE)
    write_cases(tmp_path / "cases.jsonl", 3, n=9)
    came = []

    def reply(body, number):
        came.append(json.dumps(body, sort_keys=True))
        return Reply(better_quality_wins(body).text, until=lambda: killed or not results.exists())

    results, killed = tmp_path / "out" / "results" / "real.jsonl", []
    with ScriptedEndpoint(reply) as server:
        words = ["bench", tmp_path / "study.toml", "--model", "stub", "--base-url", server.url]
        kept = ["--journal", tmp_path / "journal.sqlite", "--out", tmp_path / "out"]
        process = start(*words, *kept)
        wait_until(lambda: results.exists() or process.poll() is not None)
        process.kill()
        process.communicate()
        killed.append(process)
        before = results.read_bytes().count(b"\n")
        resumed = caps(*words, *kept)
        paid = [body for body in came if "quality=" in body]
        undisturbed = caps(*words, "--no-journal", "--out", tmp_path / "other", "--quiet")
    assert resumed.returncode == 0, resumed.stderr
    assert before < 18
    assert not before or f"{before} of 18 selections are done already" in resumed.stderr
    assert f"skipped: absent needs the file {tmp_path / 'none.jsonl'}: caps import" in resumed.stderr
    assert len(paid) - len(set(paid)) <= 4, "only what was in flight at the kill is asked twice"
    assert resumed.stdout == undisturbed.stdout
    for name in ("t.md", "t.csv"):
        first, second = (tmp_path / folder / "tables" / name for folder in ("out", "other"))
        assert first.read_bytes() == second.read_bytes()
    rows = (tmp_path / "out" / "tables" / "t.csv").read_text()
    assert "real,V1 Pass@1,pass_at_1,100.0," in rows


def test_a_judge_that_fails_leaves_its_cases_open_and_the_exit_code_says_so(tmp_path):
    (tmp_path / "study.toml").write_text(LIVE)
    write_cases(tmp_path / "cases.jsonl", 1, n=2)

    def fail(body, _):
        return Status(413, "too long") if "quality=" in str(body) else Reply()

    with ScriptedEndpoint(fail) as server:
        words = ("bench", tmp_path / "study.toml", "--model stub --base-url", server.url, "--no-journal")
        done = caps(*words, "--out", tmp_path / "out", "--json")
    assert done.returncode == 1, done.stderr
    assert "real, V1, case 'case 0'" in done.stderr
    assert (
        len(ResultFile(tmp_path / "out" / "results" / "real.jsonl").found) == 2
    )  # the first sample asks nobody


def test_an_option_given_goes_before_the_study_also_where_it_says_the_default(tmp_path):
    study = LIVE.replace('"nobody"', '"stub", judge_model = "other"').replace(
        '{ name = "CAPS", use = "caps-r" }, ', ""
    )
    (tmp_path / "study.toml").write_text(study)
    write_cases(tmp_path / "cases.jsonl", 1, n=3)
    asked = []
    with ScriptedEndpoint(better_quality_wins, models=("stub", "other")) as server:
        for more in ([], ["--judge-model", ""], ["--judge-model", "third"]):
            words = ["bench", tmp_path / "study.toml", "--base-url", server.url, "--no-journal", *more]
            done = caps(*words, "--out", tmp_path / f"out{len(asked)}", "--quiet")
            assert done.returncode == 0, done.stderr
            asked.append({body["model"] for body in server.bodies})
            server.bodies.clear()
    assert asked == [{"other"}, {"stub"}, {"third"}]


def test_a_stated_domain_and_criteria_reach_the_judge_of_a_study(tmp_path):
    study = LIVE.replace('"nobody"', '"stub", criteria = "Politeness decides here."')
    (tmp_path / "study.toml").write_text(study.replace('{ name = "CAPS", use = "caps-r" }, ', ""))
    write_cases(tmp_path / "cases.jsonl", 1, n=3)
    lines = (tmp_path / "cases.jsonl").read_text()
    (tmp_path / "cases.jsonl").write_text(lines.replace('"domain": "math", ', ""))
    with ScriptedEndpoint(better_quality_wins) as server:
        words = ["bench", tmp_path / "study.toml", "--base-url", server.url, "--no-journal"]
        for domain, reached in (("math", False), ("general", True)):
            done = caps(*words, "--domain", domain, "--out", tmp_path / domain, "--quiet")
            assert done.returncode == 0, done.stderr
            judged = [str(body) for body in server.bodies if "quality=" in str(body)]
            assert judged
            assert {"Politeness decides" in prompt for prompt in judged} == {reached}
            server.bodies.clear()
        done = caps(*words, "--domain", "generall")
    assert done.returncode == 2
    assert "did you mean 'general'" in done.stderr


@pytest.mark.slow
@pytest.mark.xdist_group("llama.cpp")
def test_the_smoke_study_runs_with_the_model_inside_the_process(tmp_path):
    words = (
        "bench",
        STUDIES / "smoke.toml",
        "--out",
        tmp_path / "out",
        "--journal",
        tmp_path / "journal.sqlite",
    )
    done = caps(*words, "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    results = list(ResultFile(tmp_path / "out" / "results" / "smoke.jsonl").found.values())
    assert len(results) == 3 * 4
    judged = [one for one in results if sum(one.calls)]
    assert {(one.method, one.case, one.malformed) for one in judged} == {
        ("Knockout", "sum", 0),
        ("CAPS", "sum", 0),
    }
    assert all(sum(one.tokens) > 50 for one in judged)
    again = caps(*words, "--dry-run")
    assert again.stdout.split()[-2:] == ["12", "12"]


def test_workers_of_a_killed_simulation_do_not_stay_behind(tmp_path):
    words = ("bench", PAPER / "difficulty.toml", "--simulate --processes 2 --out", tmp_path)
    process = subprocess.Popen(
        [CAPS, *split_words(words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_until(lambda: (tmp_path / "results").exists() or process.poll() is not None)
    assert process.poll() is None, "it ended before it could be killed"
    process.kill()
    process.wait()
    wait_until(lambda: not _alive(process.pid))
    assert not _alive(process.pid)


def _alive(group):
    """Whether any process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
