from random import Random

import pytest

from caps.core.errors import AnswerError
from caps.core.policy import Draw, Event, JudgePrice, PolicyRun, Pool, Source, replayed
from caps.core.types import Entrant, Round, Unanswered, Verdict
from caps.strategies.adaptive import Adaptive

JUDGE = JudgePrice(token=0.2, reply=80.0, prompt=300)
POLICY = Adaptive()


def entrant(place, answer):
    return Entrant(place, answer, (0, 100, 400))


class World:
    """Sources whose samples give these answers; a judge that knows the right one."""

    def __init__(self, answers, *, right="a", judge=JUDGE, failing=(), sources=1):
        self.answers, self.right, self.judge, self.failing = answers, right, judge, failing
        self.started, self.ended, self.candidates, self.sources = [0] * sources, 0, [], sources
        self.waiting = []

    def pool(self):
        rows = tuple(
            Source(1000.0, 0.6, self.started[k], sum(one == k for one in self.waiting))
            for k in range(self.sources)
        )
        entrants = tuple(entrant(place, answer) for place, (answer, _) in enumerate(self.candidates))
        return Pool(rows, entrants, tuple(k for _, k in self.candidates), self.judge)

    def after(self, action):
        if isinstance(action, Round):
            return Event(self.pool(), tuple(map(self.verdict, action.asks)))
        for k, count in enumerate(action.counts):
            self.started[k] += count
            self.waiting += [k] * count
        source, number = self.waiting.pop(0), self.ended
        self.ended += 1
        if number not in self.failing:
            self.candidates.append((self.answers[number % len(self.answers)], source))
        return Event(self.pool())

    def verdict(self, ask):
        a, b = (self.candidates[one][0] == self.right for one in (ask.a, ask.b))
        return Verdict(9, 3) if a > b else Verdict(3, 9) if b > a else Verdict(5, 5)

    def play(self, policy=POLICY, seed=1):
        run = PolicyRun(policy, Event(self.pool()), seed=seed)
        while run.pending:
            run.tell(self.after(run.pending))
        return run


def test_where_samples_agree_few_are_generated_and_the_judge_is_not_asked():
    run = World("a").play()
    assert 2 <= len(run.pool.entrants) <= 4
    assert not any(isinstance(action, Round) for action in run.actions)
    assert run.selection.facts["probability"] == 0.85  # the most that is stated without labels


def test_where_they_differ_more_are_generated_and_the_judge_decides():
    run = World("bacadabeaf").play()
    assert len(run.pool.entrants) >= 4
    assert any(isinstance(action, Round) for action in run.actions)
    assert run.pool.entrants[run.selection.winner].signature == "a"


def test_a_cheap_judge_is_asked_where_an_expensive_one_is_not():
    def verdicts(price):
        run = World("abababab", judge=JudgePrice(price, 400 * price, 300)).play()
        return sum(len(action.asks) for action in run.actions if isinstance(action, Round))

    assert verdicts(0.05) > 0
    assert verdicts(50.0) == 0


def test_a_transcript_replays_event_by_event():
    for answers in ("a", "ab", "abcd", "aabbcc"):
        run = World(answers).play(seed=5)
        again = replayed(Adaptive(), run.events, seed=5)
        assert (again.actions, again.selection) == (run.actions, run.selection)


def test_it_may_be_stopped_after_any_event_with_the_best_so_far():
    run = World("abcabc").play()
    for count in range(1, len(run.events)):
        part = replayed(Adaptive(), run.events[:count], seed=1)
        part.stop("time")
        if part.pool.entrants:
            assert part.selection.provisional
            assert part.selection.winner == part.selection.order[0]
        else:
            assert part.selection is None


def test_failed_samples_are_replaced_up_to_the_limit_and_then_there_is_no_choice():
    run = World("a", failing=(0, 1)).play()
    assert run.selection is not None
    nothing = World("a", failing=range(99)).play(Adaptive(most=6))
    assert nothing.selection is None
    assert sum(one.started for one in nothing.pool.sources) == 6


def test_an_unanswered_question_is_not_asked_again():
    world = World("abab")
    world.verdict = lambda _: Unanswered("server")
    run = world.play(Adaptive(most=4))
    asked = [
        (frozenset(a.entrants), a.level) for one in run.actions if isinstance(one, Round) for a in one.asks
    ]
    assert len(asked) == len(set(asked))


def test_at_least_as_many_as_wanted_and_at_most_as_many_as_allowed():
    assert len(World("a").play(Adaptive(least=5)).pool.entrants) >= 5
    assert len(World("abcdefgh").play(Adaptive(most=4)).pool.entrants) <= 4


def test_a_source_that_is_right_more_often_for_its_price_is_asked_first():
    pool = Pool((Source(1000.0, 0.6), Source(200.0, 0.5)))
    action = next(Adaptive().play(Event(pool), Random(1)))
    assert isinstance(action, Draw)
    assert action.counts[0] == 0 < action.counts[1]


def test_late_samples_are_replaced_and_do_not_hold_up_the_choice():
    late = Pool((Source(1000.0, 0.6, 3, 2, late=2),), (entrant(0, "a"),), (0,))
    play = Adaptive().play(Event(late), Random(1))
    assert sum(next(play).counts) > 0


def test_answers_that_do_not_fit_the_action_are_refused():
    run = PolicyRun(Adaptive(), Event(Pool((Source(1.0, 0.5),))))
    with pytest.raises(AnswerError):
        run.tell(Event(run.pool, (Verdict(9, 3),)))


def test_a_clearly_worse_generator_is_not_asked_however_cheap_it_is():
    def first(*qualities):
        sources = tuple(Source(price, quality) for price, quality in zip((3.0, 1.0), qualities, strict=True))
        return next(Adaptive().play(Event(Pool(sources)), Random(1))).counts

    assert first(0.75, 0.7) == (0, 2)
    assert first(0.75, 0.45) == (2, 0)
