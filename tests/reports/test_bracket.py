import pytest

from caps import Caps, Contest, Pairing
from caps.reports.bracket import draw
from caps.strategies.caps import CAPS_R
from support.playing import ALL, erratic, field_of, played


def text(contest):
    return "\n".join(line.plain for line in draw(contest))


def test_every_player_stands_in_the_tree_and_the_winner_heads_the_table():
    contest = played(Caps(), 16, erratic(2))
    tree, _, table = text(contest).rpartition("win rate")
    for player in range(16):
        assert str(player) in tree.split()
    assert table.strip().split()[0] == str(contest.selection.winner)


def test_the_tree_sends_on_whoever_survived():
    contest = played(Caps(), 4)
    assert text(contest).count("├─ 0 HIGH") == 1
    assert text(contest).count("├─ 1 HIGH") + text(contest).count("├─ 2 HIGH") == 1


def test_a_rescued_player_is_announced():
    for seed in range(20):
        contest = played(CAPS_R, 16, erratic(seed), seed)
        assert ("comes back" in text(contest)) == bool(contest.selection.rescued)


@pytest.mark.parametrize("name", ALL)
def test_any_contest_can_be_drawn(name):
    for n in (1, 2, 3, 7, 16):
        contest = played(name, n, erratic(1))
        drawn = text(contest)
        assert str(contest.selection.winner) in drawn
        pairs = [ask for turn in contest.transcript for ask in turn.round.asks if isinstance(ask, Pairing)]
        assert all(str(entrant) in drawn for pair in pairs for entrant in pair.entrants)


def test_a_vote_without_comparisons_is_drawn_as_bars_of_its_scores():
    contest = played("majority", 4)
    assert not contest.transcript
    head, first, *_ = text(contest).splitlines()
    assert head == contest.selection.score_kind == "share of votes"
    assert first.split()[0] == str(contest.selection.winner)
    assert "█" in first


def test_comparisons_outside_a_tree_are_listed_with_level_and_confidence():
    drawn = text(played("v1-infer", 4))
    assert "swiss (E2)" in drawn
    assert ">>" in drawn or "<<" in drawn
    assert "win rate" in drawn


def test_both_orders_of_a_pair_are_one_game_of_the_tree():
    assert text(played(Caps(order="both"), 4)).count("├─") == 2


def test_a_stopped_contest_can_be_drawn():
    contest = Contest(Caps(), field_of(16))
    contest.answer([erratic(1)(ask) for ask in contest.pending.asks])
    contest.stop("budget")
    assert text(contest).count("├─") == 8
