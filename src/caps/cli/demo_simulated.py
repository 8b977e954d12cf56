"""`caps demo --simulated`: one contest between made-up candidates, with no model at all."""

from caps.building import make_strategy
from caps.cli.output import stdout
from caps.core.contest import Contest
from caps.core.text import number
from caps.core.types import Level
from caps.costs.closed_form import ViewSizes, v1_infer_calls
from caps.judging.simulated import PRESETS, SimulatedJudge
from caps.reports.bracket import draw
from caps.studies.simulation import LabelledPool, PoolModel


def show_simulated(seed: int) -> None:
    """Play one contest of CAPS-R between 16 made-up candidates and draw its bracket."""
    pool = _interesting(PoolModel(kind="math", new_wrong=8.0), seed)
    judge = SimulatedJudge(PRESETS["80"], pool.entrants, pool.correct, seed=seed)
    contest = Contest(make_strategy("caps-r"), pool.entrants, seed=seed)
    while round_ := contest.pending:
        contest.answer([judge.answer(ask) for ask in round_.asks])

    console = stdout()
    clusters = len({entrant.signature for entrant in pool.entrants})
    console.print(
        "[bold]One problem, 16 candidates, a simulated judge (right in 80 % of full comparisons)[/bold]"
    )
    console.print(
        f"Stage 0 merges equal answers, without a call: {clusters} different ones remain.\n"
        "Stage A halves them on partial views, Stage B at full evidence; the upper of two sat in slot A.\n"
        "Stage C: the finalists all meet: + won, - lost, = tied, doubled where sure, ᴬ sat in slot A.\n"
    )
    for line in draw(contest, lambda one: f"{one}{'✓' if pool.correct[one] else '✗'}"):
        console.print(line)
    _summary(contest, pool)


def _interesting(model: PoolModel, seed: int) -> LabelledPool:
    """The first made-up pool in which choosing is neither trivial nor hopeless."""
    number_ = 0
    while True:
        pool = model.pool(number_, seed)
        clusters = len({entrant.signature for entrant in pool.entrants})
        if 2 <= sum(pool.correct) <= 6 and clusters >= 9:
            return pool
        number_ += 1


def _summary(contest: Contest, pool: LabelledPool) -> None:
    sizes = ViewSizes()
    asks = [ask for turn in contest.transcript for ask in turn.round.asks]
    tokens = sum(sizes.tokens(ask) for ask in asks)
    whole = v1_infer_calls(len(pool.entrants)).full * sizes.per_full
    partial = sum(ask.level == Level.PARTIAL for ask in asks)
    winner = contest.selection.winner
    console = stdout()
    console.print(
        f"\nThe winner is {winner}, which is {'right' if pool.correct[winner] else 'wrong'}: "
        f"{partial} calls at E1 and {len(asks) - partial} at E2 in {len(contest.transcript)} rounds, "
        f"{number(tokens, 0)} tokens; V1-Infer would read {number(whole, 0)} ({tokens / whole:.0%} of that).",
        style="bold",
    )
    console.print(
        "Sizes are the paper's means (250, 4,000 and 500 tokens); candidates and judge are simulated."
    )
    console.print("Next:  caps plan --pool 16     caps simulate     caps list strategies", style="dim")
