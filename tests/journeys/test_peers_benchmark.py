"""The endpoint of the benchmark against other tools counts everyone by one rule, and everyone can read it."""

import json

import pytest
from peers import answers, endpoint, pools

from caps.core.types import Level, Pairing, Rating, Solo, Verdict
from caps.evidence.domains import domain_named
from caps.prompts.read import read_reply
from caps.prompts.render import find_template, render
from caps.session.parts import load_templates, make_prepare


@pytest.fixture(scope="module")
def bench():
    return answers.Bench(pools.marked_cases(2, n=4, tokens=300))


def asked(text, **more):
    return {"messages": [{"role": "user", "content": text}], **more}


def test_pools_are_the_same_every_time_and_cluster_as_they_were_made():
    first, again = (pools.marked_cases(4, n=8, tokens=200) for _ in range(2))
    assert first == again
    for one in first:
        evidence = make_prepare()(one.case).evidence.entrants
        made = [entrant.signature for entrant in one.pool.entrants]
        assert len(set(made)) == len({entrant.signature for entrant in evidence})


@pytest.mark.parametrize(
    ("ask", "kind"),
    [
        (Pairing(0, 1, Level.PARTIAL), Verdict),
        (Pairing(1, 0, Level.FULL), Verdict),
        (Pairing(2, 3, Level.FULL, dialect="ratings"), Verdict),
        (Solo(2, Level.FULL), Rating),
    ],
)
def test_our_own_questions_get_replies_we_can_read(bench, ask, kind):
    case = pools.marked_cases(2, n=4, tokens=300)[1].case
    prepared = make_prepare()(case)
    views = [prepared.evidence.view(one, ask.level) for one in ask.entrants]
    template = find_template(load_templates(), ask, domain_named(case.domain))[1]
    (message,) = render(template, problem=case.problem, views=views, nonce=prepared.nonce, code=prepared.code)
    reply = bench.reply(asked(message.content))
    words = {"truncated": False, "nonce": prepared.nonce, "code": prepared.code}
    reading = read_reply(ask, reply.texts[0], **words)
    assert (reply.kind, reply.domain, reading.how) == ("judge", "code", "tags")
    assert isinstance(reading.answer, kind)


def test_others_get_replies_in_their_own_words(bench):
    number = bench.reply(asked("q0 q0c1 Rate the above response:")).texts[0]
    assert 1 <= float(number) <= 10
    score = bench.reply(asked("q0 q0c1", response_format={"type": "json_schema"})).texts[0]
    assert json.loads(score)["score"] == float(number)
    assert (
        bench.reply(asked('q0 q0c1 q0c2 end with "Winner: A"')).texts[0].rpartition("Winner: ")[2] in "ABTIE"
    )
    analysis = bench.reply(asked("q0 q0c1 q0c2 <score_A>", temperature=1.0)).texts[0]
    prefilled = asked("q0 q0c1 q0c2 <score_A>")
    prefilled["messages"].append(
        {"role": "assistant", "content": f"{analysis.partition('<score')[0]}\n<score_A>"}
    )
    letter = bench.reply(prefilled)
    assert f"<score_A> {letter.texts[0]} </score_A>" in analysis
    assert max(letter.letter, key=letter.letter.get) == letter.texts[0]


def test_requests_for_candidates_get_the_pool_in_turn(bench):
    pool = [one.text for one in pools.marked_cases(2, n=4, tokens=300)[0].case.candidates]
    drawn = [bench.reply(asked("Problem q0.")).texts[0] for _ in range(2)]
    assert [*drawn, *bench.reply(asked("Problem q0.", n=2)).texts] == pool
    assert bench.reply(asked("Problem q0.")).kind == "generation"


def test_tokens_are_counted_by_one_rule_and_seen_prefixes_once():
    counter = endpoint.Counter()
    reply = answers.Reply("judge", "math", ["w" * 10])
    prompt = "x" * 3 * endpoint.BLOCK
    assert counter.add(asked(prompt + "a" * 5), reply) == (50, 3)
    assert counter.add(asked(prompt + "b" * 5), reply) == (2, 3)
    told = {"calls": 2, "prompt": 100, "new": 52, "written": 6}
    assert counter.sums == {"judge": told, "judge math": told}


def test_a_call_takes_longer_the_more_it_reads_and_writes():
    latency = endpoint.Latency(fixed=0.1, reading=1000, writing=100)
    assert latency.seconds(500, 20) == pytest.approx(0.8)
