"""What every engine keeps to: each case once and by its number, a bad line alone, and nothing paid twice."""

import pytest

from caps.config import RunConfig
from caps.core.errors import InputError
from caps.session.resolve import resolve
from caps.session.session import open_session
from caps.testing import better_quality_wins, cases
from support.batching import BatchServer

ENGINES = {
    "local": {},
    "batch": {"engine": "batch", "batch": {"poll": 0.01}},
    "ray": {"engine": "ray"},
}
ON_A_CLUSTER = (
    pytest.mark.linux,
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning:ray"),
)


@pytest.fixture(params=["local", "batch", pytest.param("ray", marks=ON_A_CLUSTER)])
def config(request, tmp_path):
    with BatchServer(better_quality_wins) as server:
        yield RunConfig(
            model="stub", base_url=(server.url,), hard_evidence="off", strategy="caps", seed=7, max_tokens=64,
            journal=tmp_path / "journal.sqlite", **ENGINES[request.param],
        )  # fmt: skip


async def played(config, source):
    async with open_session(resolve(config)) as session:
        rulings = []
        session.engine.watch = rulings.append
        return [outcome async for outcome in session.run(source)], rulings


async def test_every_case_has_its_outcome_and_a_bad_line_fails_alone(config):
    first, second, third = cases(3)
    outcomes, rulings = await played(config, [first, InputError("cases.jsonl:2: not JSON"), second, third])
    by_number = {outcome.number: outcome for outcome in outcomes}
    assert sorted(by_number) == list(range(4)) == sorted(outcome.number for outcome in outcomes)
    assert "not JSON" in by_number[1].failure
    for number, case in ((0, first), (2, second), (3, third)):
        outcome = by_number[number]
        assert (outcome.name, outcome.failure) == (case.id, None)
        assert case.candidates[outcome.selection.winner].correct
        assert outcome.ledger.calls == {"E1": 4, "E2": 6}
    assert len(rulings) == 3 * 10


async def test_the_same_cases_again_are_chosen_alike_and_nothing_is_billed(config):
    outcomes, _ = await played(config, cases(2))
    again, _ = await played(config, cases(2))
    for before, after in zip(
        *(sorted(run, key=lambda outcome: outcome.number) for run in (outcomes, again)), strict=True
    ):
        assert before.selection == after.selection
        assert before.ledger.total().asked == after.ledger.total().asked
        assert before.ledger.total().billed > after.ledger.total().billed == 0
