"""Batches put together: judges that wait for them, and the engine that sends them."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from caps.assemble.parts import prepare_for, price_for, templates_for
from caps.assemble.setup import Endpoint, Setup
from caps.core.errors import InputError, SettingError
from caps.core.play import Strategy
from caps.core.types import Case, Level
from caps.costs.prices import Price
from caps.engines.base import PerCase
from caps.engines.batch import BatchEngine, MakeConvoy, refuse_unkept
from caps.engines.batch_courier import Courier
from caps.engines.budget import Budget, CasePurse, Total
from caps.engines.convoy import Convoy
from caps.findings.kept import Findings
from caps.journal.store import Journal
from caps.judges.llm import JudgeSettings, LlmJudge, Seat
from caps.models.base import Model
from caps.models.batches import Batches
from caps.models.failures import Failures
from caps.models.http import HttpModel
from caps.models.waiting import Waiting, WaitingModel


def check_batch(setup: Setup) -> None:
    """Refuse what no batch can do, before anything is sent."""
    refuse_unkept(setup.case_budget, setup.total_budget)
    if setup.journal is None:
        raise SettingError("batches need a journal: leave out --no-journal")


def batch_engine(
    setup: Setup,
    models: Mapping[Endpoint, Model],
    journal: Journal,
    settings: JudgeSettings,
    findings: Findings | None,
) -> BatchEngine:
    """The engine that sends batches to the endpoints of a run."""
    desks: dict[Hashable, Batches] = {}
    for where, model in models.items():
        if not isinstance(model, HttpModel):
            raise SettingError(f"--engine batch needs an endpoint with a Batch API; {where.base_url} is none")
        desks[where] = Batches(model, where.model, window=setup.batch.window)
    failures = Failures(setup.batch.tries)
    waiting = Waiting(journal, failures)
    return BatchEngine(
        convoys(replace(setup, judge=settings), waiting, price_for(setup)),
        waiting,
        desks,
        Courier(journal, failures, setup.batch),
        settings=setup.batch,
        find=None if findings is None else findings.find,
    )


def convoys(setup: Setup, waiting: Waiting, price: Price | None) -> MakeConvoy:
    """How cases are made ready to move together, with a judge whose models wait for batches."""
    judge, prepare = waiting_judge(setup, waiting), prepare_for(setup)

    def make(cases: Sequence[Case | InputError], strategy: Strategy | PerCase, seed: int) -> Convoy:
        return Convoy(
            cases,
            strategy,
            seed=seed,
            judge=judge,
            prepare=prepare,
            waiting=waiting,
            purse=lambda: CasePurse(setup.case_budget, price, Total(Budget(), price)),
        )

    return make


def waiting_judge(setup: Setup, waiting: Waiting) -> LlmJudge:
    """The judge of a run, whose models wait for batches."""
    seats = {}
    for level, where in (
        (Level.PARTIAL, setup.endpoint_partial or setup.endpoint),
        (Level.FULL, setup.endpoint),
    ):
        seats[level] = Seat(WaitingModel(waiting, where), where.model, setup.extra)
    return LlmJudge(seats, templates_for(setup), setup.judge)
