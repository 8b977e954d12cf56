"""Adaptive sampling as plain data: who wrote the winner, what each generator cost, the story."""

from typing import Any

from caps.core.text import number, percent, plural
from caps.core.types import Usage
from caps.engines.adaptive import Adapted, GeneratorLedger, Step
from caps.engines.base import Outcome

Line = dict[str, Any]
FIXED = 16  # samples that a fixed number would have taken


def adaptive_line(adapted: Adapted[Any], outcome: Outcome) -> Line:
    """The fields that adaptive sampling adds to a result line."""
    names = [one.name for one in adapted.ledgers]
    chosen = None if outcome.selection is None else outcome.selection.winner
    return {
        "written_by": [names[source] for source in adapted.written_by],
        "model": None if chosen is None else names[adapted.written_by[chosen]],
        "generators": [generator_line(one) for one in adapted.ledgers],
        "stopped": adapted.stopped,
        "story": [step_line(step) for step in adapted.steps],
        "fixed_16": _fixed_line(adapted.ledgers),
    }


def generator_line(ledger: GeneratorLedger) -> Line:
    """What one generator was asked for and what that cost."""
    return {
        "model": ledger.name,
        "quality": round(ledger.quality, 4),
        "samples": ledger.started,
        "failed": ledger.failed,
        "cancelled": ledger.cancelled,
        "replayed": ledger.replayed,
        "tokens": {**_tokens(ledger.paid), "estimated": ledger.paid.estimated},
        "usd": None if ledger.usd is None else round(ledger.usd, 6),
    }


def _tokens(usage: Usage) -> Line:
    return {
        "billed": usage.prompt,
        "cached": usage.cached,
        "output": usage.output,
        "reasoning": usage.reasoning,
    }


def step_line(step: Step) -> Line:
    """One step of the story."""
    return {
        "seconds": round(step.seconds, 3),
        "what": step.what,
        "samples": step.samples,
        "leader": step.leader,
        "probability": None if step.probability is None else round(step.probability, 4),
        "generation": [step.generation.prompt, step.generation.output],
        "judging": [step.judging.prompt, step.judging.output],
    }


def _fixed_line(ledgers: list[GeneratorLedger]) -> Line | None:
    """What 16 samples of the first generator would have cost, at the mean of those that ended."""
    first = ledgers[0]
    ended = first.ended
    if not ended:
        return None
    prompt, output = round(FIXED * first.usage.prompt / ended), round(FIXED * first.usage.output / ended)
    usd = None if first.price is None else round(first.price.of(prompt, output), 6)
    return {"prompt": prompt, "output": output, "usd": usd, "estimated": True}


def adaptive_text(adapted: Adapted[Any], line: Line) -> list[str]:
    """A few lines of text: how sure, what each generator cost, and what a fixed number would have cost."""
    last = adapted.steps[-1] if adapted.steps else None
    lines = []
    if last is not None and last.probability is not None:
        lines.append(
            f"stopped after {plural(last.samples, 'sample')}, {percent(last.probability)} % sure"
            + (f": the {adapted.stopped} ended" if adapted.stopped else "")
        )
    for generator in line["generators"]:
        if generator["samples"]:
            about = "about " if generator["tokens"]["estimated"] else ""
            cost = "" if generator["usd"] is None else f", ${generator['usd']:.4f}"
            cancelled = f", {generator['cancelled']} cancelled" if generator["cancelled"] else ""
            lines.append(
                f"{generator['model']}: {plural(generator['samples'], 'sample')}{cancelled}, {about}"
                f"{number(generator['tokens']['output'], 0)} tokens written{cost}"
            )
    fixed = line["fixed_16"]
    if fixed is not None:
        cost = "" if fixed["usd"] is None else f", ${fixed['usd']:.4f}"
        lines.append(f"{FIXED} samples would have written about {number(fixed['output'], 0)} tokens{cost}")
    return lines
