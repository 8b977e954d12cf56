import pytest

from caps import Caps, Contest, Entrant, Level, Unanswered, Verdict
from caps.strategies.caps import CAPS_PLUS, CAPS_R
from support.playing import asks_of, calls, erratic, everything_ties, field_of, lower_id_wins, play, played

HIGH, LOW, TIE = (9, 3), (7, 5), (5, 5)


def saying(rules):
    """A judge with set verdicts for some unordered pairs at a level; elsewhere the lower id wins, surely."""

    def judge(ask):
        for (winner, loser, level), ratings in rules.items():
            if ask.level == level and {ask.a, ask.b} == {winner, loser}:
                return Verdict(*ratings) if ask.a == winner else Verdict(*ratings[::-1])
        return lower_id_wins(ask)

    return judge


def stages(contest):
    return [
        (turn.round.stage, len(turn.round.asks), str(turn.round.asks[0].level)) for turn in contest.transcript
    ]


def test_standard_configuration_asks_8_partial_and_10_full():
    contest = played(Caps(), 16)
    assert contest.selection.winner == 0
    assert (calls(contest, Level.PARTIAL), calls(contest, Level.FULL)) == (8, 10)
    assert stages(contest) == [("A", 8, "E1"), ("B", 4, "E2"), ("C", 6, "E2")]


def test_stage_0_merges_equal_answers_and_seeds_by_cluster_size():
    contest = Contest(Caps(), field_of(6, ["x", "y", "x", "z", "x", "y"]))
    first = contest.pending
    assert [set(ask.entrants) for ask in first.asks] == [{4, 3}]
    assert first.byes == (5,)
    assert first.ranking == (4, 0, 2, 5, 1, 3)  # each followed by the others of its cluster


@pytest.mark.parametrize(
    ("rule", "expected"), [("longest", 2), ("first", 0), ("shortest", 1), ("random", {0, 1, 2})]
)
def test_a_cluster_is_represented_as_the_rule_says(rule, expected):
    field = [Entrant(0, "x", (0, 0, 20)), Entrant(1, "x", (0, 0, 10)), Entrant(2, "x", (0, 0, 30))]
    winners = {played(Caps(representative=rule), field, seed=seed).selection.winner for seed in range(30)}
    assert winners == (expected if isinstance(expected, set) else {expected})


def test_an_odd_pool_gives_the_middle_seed_a_bye():
    contest = Contest(Caps(), field_of(5, ["a", "b", "c", "d", "e"]), seed=4)
    seeds = contest.pending.ranking
    assert contest.pending.byes == (seeds[2],)
    assert [set(ask.entrants) for ask in contest.pending.asks] == [{seeds[0], seeds[4]}, {seeds[1], seeds[3]}]


def test_stage_b_is_skipped_when_stage_a_leaves_no_more_than_the_finalists():
    assert [stage for stage, *_ in stages(played(Caps(), 8))] == ["A", "C"]


def test_a_pool_of_two_is_decided_by_one_partial_view_when_read_literally():
    assert stages(played(Caps(), 2)) == [("A", 1, "E1")]
    assert stages(played(Caps(small_pool="finals"), 2)) == [("C", 1, "E2")]


def test_halving_may_pass_below_the_finalists_unless_reduction_is_exact():
    assert stages(played(Caps(), 10)) == [("A", 5, "E1"), ("B", 2, "E2"), ("C", 3, "E2")]
    assert stages(played(Caps(reduction="exact"), 10)) == [("A", 5, "E1"), ("B", 1, "E2"), ("C", 6, "E2")]


def test_a_sure_partial_win_outvotes_a_full_verdict_by_score_only():
    """Stage A: 0 wins narrowly, 1 surely. Stage B: 0 beats 1 narrowly at full evidence."""
    field = field_of(4)

    def judge(ask):
        if ask.level == Level.PARTIAL:
            strong = Verdict(9, 3) if 1 in ask.entrants else Verdict(7, 5)
            return strong if ask.a < ask.b else strong.swapped()
        return Verdict(7, 5) if ask.a < ask.b else Verdict(5, 7)

    paired = [seed for seed in range(40) if _meet_in_stage_b(field, judge, seed)]
    assert paired
    for seed in paired:
        assert played(Caps(finalists=1), field, judge, seed).selection.winner == 1
        assert played(Caps(finalists=1, advance_by="verdict"), field, judge, seed).selection.winner == 0


def _meet_in_stage_b(field, judge, seed):
    contest = Contest(Caps(finalists=1), field, seed=seed)
    contest.answer([judge(ask) for ask in contest.pending.asks])
    return {frozenset(ask.entrants) for ask in contest.pending.asks} == {frozenset((0, 1))}


def test_ties_in_an_elimination_go_to_the_larger_cluster():
    contest = Contest(Caps(), field_of(5, ["x", "x", "x", "y", "y"]))
    contest.answer([everything_ties(ask) for ask in contest.pending.asks])
    assert contest.selection.winner == 2


def test_an_unanswered_pair_is_decided_by_standing_and_adds_no_score():
    contest = Contest(Caps(), field_of(5, ["x", "x", "x", "y", "y"]))
    contest.answer([Unanswered()])
    assert (contest.selection.winner, contest.selection.provisional) == (2, True)


def test_stage_c_ties_go_to_the_score_of_the_earlier_stages():
    """Two finalists tie in the final; the one that came with the surer partial win is chosen."""

    def judge(ask):
        if ask.level == Level.FULL:
            return Verdict(5, 5)
        sure = min(ask.entrants) == 1
        verdict = Verdict(9, 3) if sure else Verdict(7, 5)
        return verdict if ask.a < ask.b else verdict.swapped()

    for seed in range(20):
        contest = played(Caps(), 4, judge, seed)
        if set(contest.selection.finalists) == {0, 1}:
            assert contest.selection.winner == 1


def test_win_rates_come_from_stage_c_alone():
    contest = played(Caps(), 16, erratic(3), seed=1)
    final = contest.transcript[-1]
    finalists = contest.selection.finalists
    assert {player for ask in final.round.asks for player in ask.entrants} == set(finalists)
    for player in finalists:
        won = at_stake = 0.0
        for ask, verdict in zip(final.round.asks, final.answers, strict=True):
            if player in ask.entrants:
                weight = max(verdict.weight, 0.05)
                at_stake += weight
                won += weight * (verdict.outcome if ask.a == player else 1 - verdict.outcome)
        assert contest.selection.scores[player] == pytest.approx(won / at_stake)


def test_the_order_is_finalists_then_the_latest_losers_each_with_its_cluster():
    names = [*map(str, range(16)), "0", "1"]
    contest = played(Caps(), field_of(18, names), erratic(1))
    order, (a, b, c) = contest.selection.order, contest.transcript
    players = [{names[one] for ask in turn.round.asks for one in ask.entrants} for turn in (a, b, c)]
    clusters = list(dict.fromkeys(names[one] for one in order))
    assert [names[one] for one in order] == [name for name in clusters for _ in range(names.count(name))]
    assert set(clusters[:4]) == players[2]
    assert set(clusters[4:8]) == players[1] - players[2]
    assert set(clusters[8:]) == players[0] - players[1]


class TestRescue:
    def test_the_literal_rule_brings_back_a_loser_within_the_margin(self):
        contest = played(CAPS_R, 16, everything_ties)
        assert len(contest.selection.rescued) == 1
        assert contest.selection.facts["rescue_gap"] == pytest.approx(0)
        assert calls(contest, Level.FULL) == 14

    def test_a_clear_field_rescues_nobody(self):
        contest = played(CAPS_R, 16)
        assert contest.selection.rescued == ()
        assert contest.selection.facts["rescue_gap"] == pytest.approx(6 / 9)

    @pytest.mark.parametrize(("size", "back"), [(1, True), (2, False)])
    def test_a_singleton_may_lose_by_twice_the_margin(self, size, back):
        """Two answers; one partial view decides LOW, so the gap is 2/9: over 0.15, under 0.30."""
        field = field_of(1 + size, ["winner", *["loser"] * size])
        contest = played(CAPS_R, field, saying({(0, size, Level.PARTIAL): LOW}))
        assert bool(contest.selection.rescued) == back

    def test_the_margin_is_inclusive(self):
        judge = saying({(0, 1, Level.PARTIAL): LOW})
        assert played(Caps(rescue="paper", rescue_margin=1 / 9), 2, judge).selection.rescued == (1,)
        assert played(Caps(rescue="paper", rescue_margin=0.11), 2, judge).selection.rescued == ()

    def test_the_signed_rule_also_takes_a_loser_that_stands_above_the_weakest_finalist(self):
        """A Stage-B loser with two earlier points outranks a finalist that had a bye."""
        seen = set()
        for seed in range(200):
            literal = played(CAPS_R, 16, erratic(seed), seed)
            signed = played(Caps(rescue="signed"), 16, erratic(seed), seed)
            gap = signed.selection.facts["rescue_gap"]
            assert bool(signed.selection.rescued) == (gap <= 0.15 + 1e-9)
            seen.add((bool(literal.selection.rescued), bool(signed.selection.rescued), gap < 0))
        assert (True, True, False) in seen

    def test_screened_rescues_only_stage_a_losers_the_narrowest_first(self):
        for seed in range(60):
            contest = played(Caps(rescue="screened"), 16, erratic(seed), seed)
            first = contest.transcript[0]
            lost_by = {}
            for ask, verdict in zip(first.round.asks, first.answers, strict=True):
                survivors = {one for later in contest.transcript[1].round.asks for one in later.entrants}
                loser = ask.b if ask.a in survivors else ask.a
                lost_by[loser] = 0 if verdict.outcome == 0.5 else verdict.weight
            narrowest = min(lost_by.values())
            if narrowest <= 0.3:
                assert lost_by[contest.selection.rescued[0]] == narrowest
            else:
                assert contest.selection.rescued == ()

    def test_more_than_one_may_come_back(self):
        contest = played(Caps(rescue="paper", rescue_count=3), 16, everything_ties)
        assert len(contest.selection.rescued) == 3
        assert len(contest.transcript[-1].round.asks) == 21


def test_full_screening_asks_everything_at_full_evidence():
    assert calls(played(Caps(screening="E2"), 16), Level.PARTIAL) == 0


@pytest.mark.parametrize(("partial", "level"), [(250, Level.PARTIAL), (900, Level.FULL), (0, Level.PARTIAL)])
def test_auto_screening_reads_in_full_where_partial_views_are_hardly_shorter(partial, level):
    field = [Entrant(i, str(i), (0, partial, 1000)) for i in range(8)]
    assert asks_of(played(CAPS_PLUS, field))[0].level == level


def test_seeding_by_prior_puts_tests_before_scores_before_clusters():
    field = [
        Entrant(0, "w", features={"tests_passed": 1, "score": 0.1}),
        Entrant(1, "x", features={"tests_passed": 2, "score": 0.2}),
        Entrant(2, "y", features={"tests_passed": 2, "score": 0.9}),
        Entrant(3, "z", features={"tests_passed": 0, "score": 1.0}),
        Entrant(4, "z", features={"tests_passed": 0, "score": 1.0}),
    ]
    assert Contest(Caps(seed_by="prior"), field).pending.ranking[:4] == (2, 1, 0, 3)


def test_the_same_seed_gives_the_same_pairs_another_seed_others():
    first, again, other = (Contest(Caps(), field_of(16), seed=seed).pending for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_an_inconsistent_judge_still_yields_one_winner():
    cycle = saying({(2, 0, Level.FULL): HIGH, (0, 1, Level.FULL): HIGH, (1, 2, Level.FULL): TIE})
    contest = Contest(Caps(), field_of(16), seed=5)
    assert play(contest, cycle).winner in contest.selection.finalists


def with_tests(shares):
    return [Entrant(i, f"s{i}", features={"tests_passed": share}) for i, share in enumerate(shares)]


def test_a_shortlist_by_tests_plays_only_who_passes_all_and_keeps_the_rest_in_order():
    contest = Contest(Caps(shortlist="tests"), with_tests([0.5, 1, 0, 1, 0.75]), seed=1)
    asked = {one for turn in iter_turns(contest) for ask in turn.asks for one in ask.entrants}
    assert asked == {1, 3}
    assert contest.selection.order[2:] == (4, 0, 2)


def test_a_shortlist_that_nobody_makes_is_none():
    contest = Contest(Caps(shortlist="tests"), with_tests([0.5, 0, 0.9]), seed=1)
    asked = {one for turn in iter_turns(contest) for ask in turn.asks for one in ask.entrants}
    assert asked == {0, 1, 2}


def iter_turns(contest):
    while round_ := contest.pending:
        yield round_
        contest.answer([Verdict(9, 3)] * len(round_.asks))


def test_stage_b_may_be_paired_at_random_and_asks_as_many():
    field = field_of(16)
    ours, drawn = (played(Caps(reseed_by=by), field, erratic(5), seed=2) for by in ("score", "random"))
    pairs = [[turn.round.asks for turn in one.transcript if turn.round.stage == "B"] for one in (ours, drawn)]
    assert [len(asks) for asks in pairs[0]] == [len(asks) for asks in pairs[1]] == [4]
    assert {frozenset((ask.a, ask.b)) for ask in pairs[0][0]} != {
        frozenset((ask.a, ask.b)) for ask in pairs[1][0]
    }
    assert ours.transcript[0] == drawn.transcript[0]
