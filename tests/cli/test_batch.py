"""Selections through Batch files, and `select --engine batch` as people use it: interrupted, killed, resumed."""

import json
import random
import signal

import pytest

from batching import DROPPED, EXPIRED, GARBAGE, BatchServer, batch, begin, by_quality, provide, written
from caps.core.errors import InputError, SettingError, UnreadableJudgeError
from caps.testing import Reply, ScriptedEndpoint, Status, better_quality_wins, case_line, spread, write_cases
from running import run_here
from shell import start
from waiting import wait_until

TOO_LONG = Status(400, {"error": {"message": "exceeds the context length"}})


def selections(text):
    return {line["id"]: (line["order"], line["provisional"]) for line in map(json.loads, text.splitlines())}


def status(folder):
    return json.loads(batch("status", folder, "--json").stdout)


def test_step_by_step_to_the_selections_of_a_live_run(tmp_path):
    folder, sizes, done = tmp_path / "batch", [], begin(tmp_path, n=16)
    for trips in (3, 2, 1):
        (path,) = written(done)
        sizes.append(len(path.read_text().splitlines()))
        assert status(folder)["trips"] == trips
        provide(path)
        assert batch("absorb", folder).exit_code == 0
        done = batch("prepare", folder)
    assert sizes == [4 * 8, 4 * 4, 4 * 6]
    assert done.exit_code == 0
    assert "complete: the selections are in" in done.stderr.replace("\n", " ")
    first = json.loads(done.stdout.splitlines()[0])
    assert first["tokens"]["billed"] == first["tokens"]["asked"] > 0
    assert (folder / "selections.jsonl").read_text() == done.stdout
    found = status(folder)
    assert (found["over"], found["open"], found["trips"], found["answered"]) == (4, 0, 0, 4 * 18)
    with ScriptedEndpoint(better_quality_wins) as server:
        words = (
            "--model",
            "stub",
            "--base-url",
            server.url,
            "--strategy",
            "caps",
            "--hard-evidence",
            "off",
            "--quiet",
        )
        journal = ("--journal", tmp_path / "journal.sqlite")
        free = run_here("select", tmp_path / "cases.jsonl", *words, *journal)
        assert server.requests == 0
        live = run_here("select", tmp_path / "cases.jsonl", *words, "--no-journal")
    assert selections(done.stdout) == selections(free.stdout) == selections(live.stdout)
    assert selections(run_here("replay", folder, "--quiet").stdout) == selections(live.stdout)


def test_results_come_in_any_order_twice_and_with_strangers_and_failures_ride_in_the_next_file(tmp_path):
    folder = tmp_path / "batch"
    (path,) = written(begin(tmp_path))
    fates = {
        0: EXPIRED,
        1: Status(500, "oops"),
        2: TOO_LONG,
        3: Reply("no verdict"),
        4: Reply("cut", finish="length"),
        5: GARBAGE,
        6: DROPPED,
    }
    output, errors = provide(path, lambda body, number: fates.get(number) or by_quality(body, number))
    keys = [json.loads(line)["custom_id"] for line in path.read_text().splitlines()]
    lines = output.read_text().splitlines()
    stranger = json.dumps(
        {**json.loads(lines[-1 if lines[0].startswith('{"custom_id": "half') else 0]), "custom_id": "f" * 64}
    )
    good = [line for line in lines if '"response"' in line]
    random.Random(7).shuffle(lines)
    output.write_text("\n".join([*lines, good[0], stranger, ""]) + "\n")
    assert batch("absorb", errors).exit_code == 0
    done = batch("absorb", folder, output)
    assert done.exit_code == 1
    said = " ".join(done.stderr.split())
    assert f"not a result: {output}:" in " ".join(done.stderr.split())
    assert "11 new; 1 known already; 1 not of this run" in said
    again = batch("absorb", output, errors)
    assert "nothing" not in again.stderr
    assert " new" not in again.stderr
    assert status(folder)["given_up"] == 1
    (following,) = written(batch("prepare", folder))
    rows = [json.loads(line) for line in following.read_text().splitlines()]
    open_again = {row["custom_id"] for row in rows} & set(keys)
    assert open_again == {keys[place] for place in (0, 1, 5, 6)}
    assert [row["body"]["max_tokens"] for row in rows if row["body"]["max_tokens"] > 4096] == [8192], (
        "the cut one"
    )
    drawn = [row["body"]["seed"] for row in rows if "seed" in row["body"]]
    assert drawn == [100, 100], "the unreadable and the cut one"


def test_what_is_out_is_not_written_again_unless_asked_for_and_a_lost_rest_is_open(tmp_path):
    folder = tmp_path / "batch"
    first, second = written(begin(tmp_path, "--batch", "lines=8"))
    assert (first.name, second.name) == ("step-001-01.jsonl", "step-001-02.jsonl")
    again = batch("prepare", folder)
    assert again.stdout == ""
    assert "16 requests sent in step-001-01.jsonl, step-001-02.jsonl have no result yet" in " ".join(
        again.stderr.split()
    )
    assert status(folder)["out"] == 16
    output, _ = provide(first)
    output.write_text("\n".join(output.read_text().splitlines()[:5]) + "\n")  # the program was stopped
    batch("absorb", folder)
    paths = written(batch("prepare", folder))
    rest = {json.loads(line)["custom_id"] for path in paths for line in path.read_text().splitlines()}
    assert rest & {json.loads(line)["custom_id"] for line in second.read_text().splitlines()} == set()
    assert len(rest & {json.loads(line)["custom_id"] for line in first.read_text().splitlines()}) == 3
    assert sum(
        len(path.read_text().splitlines()) for path in written(batch("prepare", folder, "--again"))
    ) == 8 + len(rest)


def test_given_up_is_not_for_ever_a_late_reply_counts(tmp_path):
    folder = tmp_path / "batch"
    (path,) = written(begin(tmp_path, count=1, n=2))
    provide(path, lambda *_: TOO_LONG)
    batch("absorb", folder)
    failed = batch("prepare", folder)
    assert failed.exit_code == 1
    assert "none of its 1 judge calls was answered: too-long (1)" in " ".join(failed.stderr.split())
    provide(path)  # the server has a longer context now
    batch("absorb", folder)
    assert status(folder)["given_up"] == 0
    assert batch("prepare", folder).exit_code == 0


def test_the_newer_name_of_the_limit_is_taken_up_by_itself(tmp_path):
    (path,) = written(begin(tmp_path, count=1))
    said = {"error": {"message": "use 'max_completion_tokens'", "param": "max_tokens"}}
    provide(path, lambda *_: Status(400, said))
    assert "max_completion_tokens" in batch("absorb", tmp_path / "batch").stderr
    (following,) = written(batch("prepare", tmp_path / "batch"))
    rows = [json.loads(line)["body"] for line in following.read_text().splitlines()]
    assert [row["max_completion_tokens"] for row in rows] == [4096] * 4


def test_what_a_folder_remembers_is_not_overruled_and_what_cannot_be_is_refused(tmp_path):
    begin(tmp_path)
    assert begin(tmp_path).stdout == "", "the same command again changes nothing"
    for words, complaint in (
        (("prepare", tmp_path / "batch", "--seed", 7), "--seed has no effect"),
        (("prepare", tmp_path / "cases.jsonl", "--model", "other", "--out", tmp_path / "batch"), "another"),
        (("prepare", tmp_path / "cases.jsonl", "--model", "m"), "--out DIR"),
        (("prepare", tmp_path / "cases.jsonl", "--out", tmp_path / "b"), "no model"),
        (("prepare", tmp_path / "cases.jsonl", "--model", "m", "--out", tmp_path / "b", "--confidence", "auto"), "auto"),
        (("prepare", tmp_path / "cases.jsonl", "--model", "m", "--out", tmp_path / "b", "--batch", "line=3"), "'lines'"),
        (("prepare", "-", "--model", "m", "--out", tmp_path / "b"), "no such file"),
        (("absorb", tmp_path), "holds no batch run"),
        (("absorb", tmp_path / "batch"), "no result files"),
        (("absorb", tmp_path / "nowhere.jsonl"), "no such file"),
        (("status", tmp_path), "not a batch folder"),
    ):  # fmt: skip
        with pytest.raises((SettingError, InputError), match=complaint):
            batch(*words)
    config = json.loads((tmp_path / "batch" / "run.json").read_text())["config"]
    assert {value for name, value in config.items() if "key" in name} == {""}, (
        "where keys come from, never keys"
    )


def test_hard_evidence_is_found_before_the_first_file(tmp_path):
    row = {
        "id": "half",
        "domain": "math",
        "problem": "?",
        "candidates": [r"\boxed{1/2}", r"\boxed{0.5}", r"\boxed{2}"],
    }
    (tmp_path / "cases.jsonl").write_text(json.dumps(row) + "\n")
    where = ("--model", "m", "--journal", tmp_path / "j.sqlite", "--out", tmp_path / "batch")
    done = batch("prepare", tmp_path / "cases.jsonl", *where, "--strategy", "majority", "--json")
    assert json.loads(done.stdout)["clusters"] == 2
    assert (tmp_path / "batch" / "selections.jsonl").read_text() == done.stdout


@pytest.mark.slow
def test_select_goes_on_with_the_batch_under_way_after_ctrl_c_and_after_a_kill(tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 3, n=8)
    with BatchServer(looks=10**6) as server:
        words = (
            "select", cases, "--engine", "batch", "--batch", "poll=0.02", "--model", "stub", "--base-url", server.url,
            "--journal", tmp_path / "journal.sqlite", "--strategy", "caps", "--hard-evidence", "off",
        )  # fmt: skip
        for sign in (signal.SIGINT, signal.SIGKILL):
            before = len(server.calls)
            process = start(*words)
            wait_until(lambda n=before: "GET /v1/batches/batch_0" in server.calls[n:])
            process.send_signal(sign)
            _, said = process.communicate()
            if sign == signal.SIGINT:
                assert process.returncode == 130
                assert "batch batch_0 continues at" in said
                assert "run the same command again" in said
        shown = json.loads(batch("status", "--journal", tmp_path / "journal.sqlite", "--json").stdout)
        assert [(one["batch"], one["requests"]) for one in shown] == [("batch_0", 12)]
        server.looks = 1
        server.batches["batch_0"]["looks"] = 1
        done = run_here(*words)
        assert done.exit_code == 0, done.stderr
        assert "under way already" in done.stderr
        assert server.sizes == [12, 18]
        assert max(server.paid.values()) == 1
        live = run_here("select", cases, *words[6:10], "--no-journal", *words[12:])
    assert selections(done.stdout) == selections(live.stdout)


def test_a_bad_line_is_named_before_the_first_file_is_run(tmp_path):
    cases, where = (
        tmp_path / "cases.jsonl",
        ("--journal", tmp_path / "journal.sqlite", "--out", tmp_path / "batch"),
    )
    cases.write_text("\n".join([case_line("fine", spread(4)), *["{bad"] * 7]))
    done = batch("prepare", cases, "--model", "m", *where)
    assert len(written(done)) == 1
    told = " ".join(done.stderr.split())
    assert [f"cases.jsonl:{line}: not JSON" in told for line in range(2, 9)] == [True] * 5 + [False] * 2
    assert "failed: 2 more, 7 in all" in told


def unreadable(body, number):
    return Reply("Both look fine.")


def test_files_of_a_judge_that_cannot_be_read_stop_before_more_is_written(tmp_path):
    folder, done = tmp_path / "batch", begin(tmp_path)
    for _ in range(3):  # the first try and two more
        (path,) = written(done)
        provide(path, unreadable)
        assert batch("absorb", folder).exit_code == 0
        if len(list(folder.glob("step-???.jsonl"))) == 3:
            break
        done = batch("prepare", folder)
    with pytest.raises(UnreadableJudgeError, match="a reply begins: 'Both look fine.'"):
        batch("prepare", folder)
    assert len(list(folder.glob("step-???.jsonl"))) == 3
    assert status(folder)["cases"] == 4  # still told


def test_a_new_folder_asks_again_what_could_not_be_read_and_the_old_one_does_not(tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 2, n=2)
    keys = []
    for name, fate in (("broken", unreadable), ("mended", by_quality)):
        folder = tmp_path / name
        where = ("--model", "stub", "--journal", tmp_path / "journal.sqlite", "--out", folder)
        more = ("--strategy", "caps", "--hard-evidence", "off", "--keep-going")
        done = batch("prepare", cases, *where, *more)
        keys.append({json.loads(line)["custom_id"] for line in written(done)[0].read_text().splitlines()})
        while "complete" not in done.stderr:
            provide(written(done)[0], fate)
            assert batch("absorb", folder).exit_code == 0
            done = batch("prepare", folder)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert [line["provisional"] for line in lines] == [name == "broken"] * 2
    assert not keys[0] & keys[1]
    again = batch("prepare", tmp_path / "broken")
    assert again.exit_code == 3
    assert all(json.loads(line)["cause"] == "unreadable" for line in again.stdout.splitlines())


def test_the_batch_engine_stops_before_it_sends_more(tmp_path):
    with BatchServer(unreadable) as server:
        with pytest.raises(UnreadableJudgeError, match="cannot be read"):
            run_here(
                "select", write_cases(tmp_path / "cases.jsonl", 4, n=8), "--engine", "batch", "--strategy", "caps",
                "--model", "stub", "--base-url", server.url, "--journal", tmp_path / "journal.sqlite",
                "--batch", "poll=0.01", "--hard-evidence", "off",
            )  # fmt: skip
        assert len(server.paid) == 4 * 4 * 3  # the first rounds, three tries each
