"""`select --engine batch` as people use it: through files, interrupted, with odd results, and killed."""

import json
import os
import re
import signal

import pytest

from caps.core.errors import BatchWaitingError, SettingError, UnreadableJudgeError
from caps.files import FolderLock
from caps.testing import Reply, ScriptedEndpoint, Status, better_quality_wins, case_line, spread, write_cases
from support.batching import (
    DROPPED,
    EXPIRED,
    GARBAGE,
    BatchServer,
    answer_files,
    by_quality,
    request_rows,
    select_in_batches,
    to_the_end,
)
from support.running import run_here
from support.shell import caps, start
from support.waiting import wait_until

TOO_LONG = Status(400, {"error": {"message": "exceeds the context length"}})
CAPS = ("--strategy", "caps", "--hard-evidence", "off")


def lines(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def waits(step):
    """The message of a command that waits for results."""
    with pytest.raises(BatchWaitingError) as waiting:
        step()
    return str(waiting.value)


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


class Files:
    """A run through files in a folder."""

    def __init__(self, path):
        self.path, self.folder = path, path / "batch"
        self.cases = write_cases(path / "cases.jsonl", 4, n=8)

    def step(self, *words):
        return select_in_batches(self.cases, self.folder, *CAPS, *words)

    def names(self):
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())

    def keys(self, name):
        return [row["custom_id"] for row in request_rows(self.folder, name)]

    def live(self, *words):
        with ScriptedEndpoint(better_quality_wins) as server:
            where = ("--model", "stub", "--base-url", server.url, *words)
            return lines(run_here("select", self.cases, *CAPS, *where)), server.requests


def test_round_by_round_to_the_result_lines_of_a_live_run(files):
    out = ("--out", files.path / "run")
    for number, size in ((1, 4 * 4), (2, 4 * 6)):
        said = waits(lambda: files.step(*out))
        assert f"waiting for {size} results" in said
        assert f"{files.folder / 'requests' / f'00{number}.jsonl'}: {size} requests without a result" in said
        assert str(files.folder / "results") in said
        assert waits(lambda: files.step(*out)) == said, "run again too early, it writes nothing"
        answer_files(files.folder)
    done = files.step(*out)
    assert done.exit_code == 0
    made = [f"{kind}/{name}" for kind in ("requests", "results") for name in ("001.jsonl", "002.jsonl")]
    errors = ["results/001.errors.jsonl", "results/002.errors.jsonl"]
    assert files.names() == sorted(["batch.json", *made, *errors])
    assert (files.path / "run" / "selections.jsonl").read_text() == done.stdout
    live, _ = files.live("--no-journal")
    assert lines(done) == live, "also what was billed"
    free, requests = files.live("--journal", files.path / "journal.sqlite")
    assert (requests, [line["order"] for line in free]) == (0, [line["order"] for line in live])
    again = files.step(*out)
    assert [line["tokens"]["billed"] for line in lines(again)] == [0] * 4, "as a live run that is run again"
    assert [line["order"] for line in lines(run_here("replay", files.path / "run", "--quiet"))] == [
        line["order"] for line in live
    ]


def test_expired_and_failed_items_are_asked_again_and_odd_lines_are_named(files):
    waits(files.step)
    fates = {
        0: EXPIRED,
        1: Status(500, "oops"),
        2: TOO_LONG,
        3: Reply("no verdict"),
        4: Reply("cut", finish="length"),
        5: Reply(None, message={"content": 3}, more={"choices": []}),
        6: GARBAGE,
        7: DROPPED,
    }
    answer_files(files.folder, lambda body, number: fates.get(number - 1000) or by_quality(body, number))
    keys, results = files.keys("001.jsonl"), files.folder / "results" / "001.jsonl"
    good = [line for line in results.read_text().splitlines() if '"response"' in line]
    stranger = json.dumps({**json.loads(good[0]), "custom_id": "f" * 64})
    with results.open("a") as file:
        file.write("\n".join([good[0], stranger, '{"response": {}}', '{"custom_id": "k", "body": {}}', ""]))
    os.mkfifo(files.folder / "results" / "002.jsonl")
    (files.folder / "results" / "003.jsonl").mkdir()
    (files.folder / "results" / "other.jsonl").write_text("[" * 100_000 + "\n" + "x\n" * 100)
    where = ("--engine", "batch", "--batch-dir", files.folder, "--journal", files.path / "journal.sqlite")
    done = caps("select", files.cases, *CAPS, "--model", "stub", *where)
    said = " ".join(done.stderr.split())
    assert done.returncode == 4
    assert "001.jsonl: 2 requests without a result" in said, "the garbled and the missing line"
    for problem in (
        "not JSON",
        "custom_id: a second result of the same request; the first stands",
        "custom_id: missing, or not a text",
        "body: a request, not a result",
    ):
        assert re.search(rf"results/001\.jsonl:\d+: {problem}", said), said
    assert "custom_id: 1 result for requests that this run did not send" in said
    assert "other.jsonl: 96 more problems" in said
    assert "failed: garbled 1, never run 1, server 1, too-long (given up) 1" in said
    again = files.keys("002.jsonl")
    assert set(again) & set(keys) == {keys[place] for place in (0, 1, 5)}
    rows = request_rows(files.folder, "002.jsonl")
    assert [row["body"]["max_tokens"] for row in rows if row["body"]["max_tokens"] > 4096] == [8192], "cut"
    assert [row["body"]["seed"] for row in rows if "seed" in row["body"]] == [100, 100], "unreadable and cut"


def test_what_keeps_failing_is_asked_in_three_files(files):
    files.cases = write_cases(files.path / "cases.jsonl", 1, n=2)
    done = to_the_end(files.step, files.folder, lambda *_: Status(503, "busy"))
    assert done.exit_code == 1
    assert len(list((files.folder / "requests").iterdir())) == 3


def test_what_is_under_way_is_written_again_only_when_its_file_is_deleted(files):
    waits(lambda: files.step("--batch", "lines=8"))
    (files.folder / "requests" / "003.jsonl.partial").write_text("of a command that was killed")
    first, second = files.keys("001.jsonl"), files.keys("002.jsonl")
    answer_files(files.folder)
    (files.folder / "results" / "002.jsonl").unlink()
    results = files.folder / "results" / "001.jsonl"
    results.write_text("".join(f"{line}\n" for line in results.read_text().splitlines()[:5]))  # stopped
    said = waits(lambda: files.step("--batch", "lines=8"))
    assert "001.jsonl: 3 requests without a result" in said
    assert "002.jsonl: 8 requests without a result" in said
    written = [key for name in ("001", "002") for key in files.keys(f"{name}.jsonl")]
    assert len(set(written)) == 16 == len(written)
    (files.folder / "requests" / "001.jsonl").unlink()
    waits(lambda: files.step("--batch", "lines=8"))
    assert not (files.folder / "requests" / "001.jsonl").exists(), "numbers are not used again"
    assert set(files.keys("003.jsonl")) < set(first)
    assert len(files.keys("003.jsonl")) == 3
    assert not set(files.keys("003.jsonl")) & set(second)


def test_given_up_is_not_for_ever_and_a_late_reply_counts(files):
    files.cases = write_cases(files.path / "cases.jsonl", 1, n=2)
    done = to_the_end(files.step, files.folder, lambda *_: TOO_LONG)
    assert done.exit_code == 1
    assert "none of its 1 judge calls was answered: too-long (1)" in " ".join(done.stderr.split())
    (files.folder / "results" / "001.jsonl").unlink()
    answer_files(files.folder)  # the server has a longer context now
    assert files.step().exit_code == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--engine", "local"), "--batch-dir is for --engine batch"),
        (("--confidence", "auto"), "--confidence auto needs a server"),
        (("--reply", "auto"), "--reply auto needs a server"),
        (("--batch", "line=3"), "'lines'"),
        (("--no-journal",), "need a journal"),
        (("--budget-seconds", 9), "a batch keeps budgets"),
        (("--judge-model", ""), "no model"),
    ],
)
def test_what_files_cannot_do_is_refused_before_anything_is_written(files, words, complaint):
    model = ("--model", "") if complaint == "no model" else ()
    with pytest.raises(SettingError, match=complaint):
        files.step(*words, *model)
    assert not files.folder.exists()


def test_hard_evidence_is_found_before_the_first_file_and_bad_lines_are_named(tmp_path):
    row = {"id": "half", "domain": "math", "problem": "?", "candidates": [r"\boxed{1/2}", r"\boxed{0.5}", r"\boxed{2}"]}  # fmt: skip
    (tmp_path / "cases.jsonl").write_text(json.dumps(row) + "\n")
    done = select_in_batches(tmp_path / "cases.jsonl", tmp_path / "batch", "--strategy", "majority")
    assert lines(done)[0]["clusters"] == 2
    (tmp_path / "cases.jsonl").write_text("\n".join([case_line("fine", spread(4)), *["{bad"] * 7]))
    where = ("--model", "m", "--engine", "batch", "--batch-dir", tmp_path / "b", "--journal", tmp_path / "j")
    done = caps("select", tmp_path / "cases.jsonl", *where)
    said = " ".join(done.stderr.split())
    assert done.returncode == 4
    assert done.stdout == ""
    assert [f"cases.jsonl:{line}: not JSON" in said for line in range(2, 9)] == [True] * 5 + [False] * 2
    assert "failed: 2 more, 7 in all" in said
    assert "caps: waiting for" in said


def test_another_process_in_the_folder_is_not_disturbed(files):
    waits(files.step)
    before = files.names()
    with FolderLock(files.folder / "requests"):
        done = caps(
            "select", files.cases, *CAPS, "--engine", "batch", "--batch-dir", files.folder, "--model", "stub",
            "--journal", files.path / "other.sqlite",
        )  # fmt: skip
    assert (done.returncode, "another process" in done.stderr) == (2, True)
    assert files.names() == before


def unreadable(body, number):
    return Reply("Both look fine.")


def test_files_of_a_judge_that_cannot_be_read_stop_before_more_is_written(files):
    with pytest.raises(UnreadableJudgeError, match="a reply begins: 'Both look fine.'"):
        to_the_end(files.step, files.folder, unreadable)
    assert len(list((files.folder / "requests").iterdir())) == 3, "the first try and two more"


def test_a_new_folder_asks_again_what_could_not_be_read_and_the_old_one_does_not(files):
    files.cases = write_cases(files.path / "cases.jsonl", 2, n=2)
    keys, old = [], files.folder
    for name, fate in (("broken", unreadable), ("mended", by_quality)):
        files.folder = files.path / name
        done = to_the_end(lambda: files.step("--keep-going"), files.folder, fate)
        keys.append(set(files.keys("001.jsonl")))
        assert [line["provisional"] for line in lines(done)] == [name == "broken"] * 2
    assert not keys[0] & keys[1]
    files.folder = files.path / "broken"
    again = files.step("--keep-going")
    assert again.exit_code == 3
    assert all(line["cause"] == "unreadable" for line in lines(again))
    assert not old.exists()


@pytest.mark.slow
def test_select_goes_on_with_the_batch_under_way_after_ctrl_c_and_after_a_kill(tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 3, n=8)
    with BatchServer(looks=10**6) as server:
        words = (
            "select", cases, *CAPS, "--model", "stub", "--base-url", server.url, "--engine", "batch",
            "--batch", "poll=0.02", "--journal", tmp_path / "journal.sqlite",
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
        server.looks = 1
        server.batches["batch_0"]["looks"] = 1
        done = run_here(*words)
        assert done.exit_code == 0, done.stderr
        assert "under way already" in done.stderr
        assert server.sizes == [12, 18]
        assert max(server.paid.values()) == 1
        live = run_here(*words[:10], "--no-journal")
    assert [line["order"] for line in lines(done)] == [line["order"] for line in lines(live)]
