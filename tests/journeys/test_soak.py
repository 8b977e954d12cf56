"""What the soak checks is itself checked: each thing that must not happen is found."""

from pathlib import Path

import pytest

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak"


@pytest.fixture
def audit(monkeypatch):
    monkeypatch.syspath_prepend(str(SOAK))
    return pytest.importorskip("audit")


def wrong(audit, lines, stored, most=10):
    found, log = audit.Found(), audit.read_log(f"p {line}" for line in lines)
    audit.check_payments(log, {"p": stored}, {"ann": 100.0, "bob": 200.0}, most, found)
    return found.wrong


@pytest.mark.parametrize(
    ("lines", "stored", "said"),
    [
        (["k ann 1 2 paid"], [2], None),
        (["k ann 1 2 500", "k ann 3 4 paid"], [4], None),
        (["k ann 1 2 500"], [], "never got an answer"),
        (["k ann 98 99 paid", "k bob 150 151 paid"], [151], None),  # ann died before she could store it
        (["k ann 1 2 paid", "k bob 150 151 paid"], [2], "by bob, 148.0 s after it was stored"),
        (["k ann 1 2 paid", "k bob 2.5 3 paid"], [2], None),  # bob had looked before it was stored
        (["k ann 1 2 paid", "k bob 1.5 1.6 429", "k bob 50 51 paid"], [2], None),  # he asked long before
        (["k ann 1 20 paid", "k ann 25 26 paid"], [26], None),  # she gave the first one up
        (["k ann 1 2 paid", "draw ann 3 4 paid", "k bob 50 51 paid"], [2, 4], "by bob, 48.0 s"),
    ],
)
def test_what_is_stored_must_not_be_paid_for_again(audit, lines, stored, said):
    found = wrong(audit, lines, stored)
    assert (said is None and not found) or (len(found) == 1 and said in found[0])


def test_a_run_that_does_not_look_into_the_journal_is_found(audit):
    lines = [line for key in "xyz" for line in (f"{key} ann 1 2 paid", f"{key} bob 4 5 paid")]
    assert "3 requests were sent although" in wrong(audit, lines, [2, 2, 2])[0]


def test_more_was_lost_with_the_dead_than_they_had_under_way(audit):
    lines = ["k ann 97 98 paid", "k ann 98 99 paid", "k bob 150 151 paid"]
    assert wrong(audit, lines, [151], most=2) == []
    assert "2 replies were lost" in wrong(audit, lines, [151], most=1)[0]


def test_an_answer_that_is_not_kept_and_a_reply_nobody_gave_are_found(audit):
    found = audit.Found()
    audit.check_kept({"q": [1.0]}, audit.read_log(["p k ann 1 2 paid"]), found)
    assert found.wrong == ["1 answers are not in the journal, 1 are nobody's"]


def test_memory_and_files_that_grow_are_found(audit):
    flat, growing = audit.Found(), audit.Found()
    audit.check_memory([audit.Mark(t, 100 + t % 3, 20, 1.0) for t in range(100)], 10, flat)
    audit.check_memory([audit.Mark(t, 100 + t, 20 + t, 1.0) for t in range(100)], 10, growing)
    assert flat.wrong == []
    assert [words.split()[0] for words in growing.wrong] == ["memory", "open"]


def test_a_selection_that_differs_or_is_missing_is_found(audit, tmp_path):
    clean, other = tmp_path / "clean.jsonl", tmp_path / "other.jsonl"
    clean.write_text('{"id": "1", "winner": 2}\n{"id": "2", "winner": 0}\n')
    other.write_text('{"id": "1", "winner": 3}\n{"id": "2", "win')
    found = audit.Found()
    audit.check_selections(clean, [other], found)
    assert "case 1 came out as" in found.wrong[0]
    assert found.wrong[1] == "1 cases were never finished"
