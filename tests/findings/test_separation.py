from caps.findings.separation import KEPT, Observed, ProgramRuns, Separation, credible, splitting


def program(*results, votes=1, passed=(True,), **more):
    """A program with these outputs on further inputs; None is a crash."""
    examples = [Observed("ok", "e" if ok else "f", passed=ok) for ok in passed]
    runs = {n: Observed("crashed") if r is None else Observed("ok", str(r)) for n, r in enumerate(results)}
    return ProgramRuns(repr(results), "python", votes, examples, runs, **more)


def test_programs_are_alike_only_if_no_valid_input_separates_them():
    same, alike, other = program(1, 2, 3, 4), program(1, 2, 3, 4, votes=2), program(1, 2, 3, 5)
    separation = Separation([same, alike, other])
    assert separation.cluster(same) == separation.cluster(alike) != separation.cluster(other)
    assert separation.separating == [3]
    assert separation.survived(other).agreed == 0
    assert separation.survived(same).agreed == 1


def test_too_few_further_inputs_make_nothing_alike():
    two = [program(1, 2), program(1, 2)]
    assert [Separation(two).cluster(one) for one in two] == [None, None]


def test_an_input_on_which_most_programs_fail_is_invalid():
    programs = [program(1, 2, 3, None), program(1, 2, 3, None), program(1, 2, 3, 7)]
    separation = Separation(programs)
    assert separation.valid == [0, 1, 2]
    assert len({separation.cluster(one) for one in programs}) == 1
    assert separation.separating == []


def test_programs_that_fail_examples_do_not_decide_which_inputs_are_valid():
    failing = [program(None, None, None, votes=9, passed=(False,)) for _ in range(3)]
    right = program(1, 2, 3)
    assert credible([*failing, right]) == [right]
    assert Separation([*failing, right]).valid == [0, 1, 2]


def test_a_popular_constant_agrees_with_nobody():
    constant, right = program(*[3] * 6, votes=7), program(1, 2, 3, 4, 5, 6, votes=2)
    separation = Separation([constant, right])
    assert separation.survived(right).agreed == separation.survived(right).inputs == 5
    assert separation.survived(constant).agreed == 0
    assert [separation.survived(one).varied for one in (constant, right)] == [False, True]


def test_crashes_and_timeouts_on_separating_inputs_are_counted():
    programs = [program(1, 2, 3, 4), program(1, 2, 3, 4), program(1, None, 3, None)]
    programs[2].further[3] = Observed("timeout")
    survived = Separation(programs).survived(programs[2])
    assert (survived.inputs, survived.agreed, survived.crashes, survived.timeouts) == (2, 0, 1, 1)


def test_few_short_inputs_that_separate_most_are_kept():
    programs = [program(0, 0, 0, *([0] * n + [1] * (30 - n))) for n in range(30)]
    separation = Separation(programs)
    lengths = {n: 50 - n for n in separation.valid}
    kept = separation.kept(lengths)
    assert 0 < len(kept) <= KEPT
    assert kept == sorted(kept, key=lengths.__getitem__)
    one, other = program(1, 1, 1, 1, 2, 2), program(1, 1, 1, 1, 3, 3)
    assert Separation([one, other]).kept({4: 9, 5: 2}) == [5]


def test_a_program_without_results_separates_nothing():
    late = ProgramRuns("late", "python", 1, [Observed("ok", "e", passed=True)])
    one, other = program(1, 2, 3), program(1, 2, 4)
    separation = Separation([late, one, other])
    assert separation.separating == [2]
    assert separation.cluster(late) is None
    assert separation.survived(late) is None
    assert Separation([]).valid == []


def test_inputs_that_split_working_programs_are_changed_further():
    one, other = program(1, 2, None, 3), program(1, 5, None, 3)
    assert splitting([one, other], range(4)) == [1]
