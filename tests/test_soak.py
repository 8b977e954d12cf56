"""What the soak checks is itself checked: each thing that must not happen is found."""

from pathlib import Path

import pytest

SOAK = Path(__file__).parents[1] / "benchmarks" / "soak"


@pytest.fixture
def audit(monkeypatch):
    monkeypatch.syspath_prepend(str(SOAK))
    return pytest.importorskip("audit")


def wrong(audit, lines, ends, most=10):
    found = audit.Found()
    log = [f"p {line}" for line in lines]
    audit.check_payments(audit.read_log(log), ends, most, found)
    return found.wrong


ENDS = {"ann": 100.0, "bob": 200.0}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["k ann 1 2 paid"], None),
        (["k ann 1 2 500", "k ann 3 4 paid"], None),
        (["k ann 1 2 500"], "never got an answer"),
        (["k ann 98 99 paid", "k bob 150 151 paid"], None),  # ann died before she could store it
        (["k ann 1 2 paid", "k bob 150 151 paid"], "without a reason"),
        (["k ann 1 2 paid", "k bob 2.5 3 paid"], None),  # bob asked before it could be stored
        (["k ann 1 2 paid", "k bob 1.5 1.6 429", "k bob 50 51 paid"], None),  # he asked long before he got it
        (["k ann 1 2 paid", "k ann 3 4 paid"], "without a reason"),
        (["k ann 98 99 unheard", "k bob 150 151 paid", "k bob 152 153 paid"], "without a reason"),
    ],
)
def test_what_was_paid_twice_needs_a_reason(audit, lines, said):
    found = wrong(audit, lines, ENDS)
    assert (said is None and not found) or (len(found) == 1 and said in found[0])


def test_more_was_lost_with_the_dead_than_they_had_under_way(audit):
    lines = [line for key in "xyz" for line in (f"{key} ann 98 99 paid", f"{key} bob 150 151 paid")]
    assert wrong(audit, lines, ENDS, most=3) == []
    assert "3 replies were lost" in wrong(audit, lines, ENDS, most=2)[0]


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
