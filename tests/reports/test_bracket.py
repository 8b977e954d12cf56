import pytest

from caps import Caps, Contest
from caps.reports.bracket import draw
from caps.strategies.caps import CAPS_R
from playing import ALL, erratic, field_of, played


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
@pytest.mark.parametrize("n", [1, 2, 3, 7, 16])
def test_any_contest_can_be_drawn(name, n):
    contest = played(name, n, erratic(1))
    drawn = text(contest)
    assert bool(drawn.strip()) == bool(contest.transcript)


def test_both_orders_of_a_pair_are_one_game_of_the_tree():
    assert text(played(Caps(order="both"), 4)).count("├─") == 2


def test_a_stopped_contest_can_be_drawn():
    contest = Contest(Caps(), field_of(16))
    contest.answer([erratic(1)(ask) for ask in contest.pending.asks])
    contest.stop("budget")
    assert text(contest).count("├─") == 8
