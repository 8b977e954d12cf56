"""What an answer cost: generation and verifier together, as clients bill it, and apart, by stage."""

from statistics import fmean
from typing import Any

from caps.core.types import Usage
from caps.costs.ledger import Ledger, Sums
from caps.server.drawing import Drawn

NOTHING = Usage(0, 0)


def usage_of(drawn: Drawn | None, ledger: Ledger) -> dict[str, Any]:
    """The object `usage` of an answer; `caps` in it holds the split."""
    spent = sum((one.sample.usage for one in drawn.draws), start=NOTHING) if drawn else NOTHING
    judged = ledger.total()
    prompt, output = spent.prompt + judged.asked, spent.output + judged.output
    split: dict[str, Any] = {"verifier": _sums(judged), "stages": _stages(ledger)}
    if drawn is not None:
        split = {"generation": _spent(drawn, spent), **split}
    split["estimated"] = spent.estimated or ledger.estimated
    if drawn is not None and len(drawn.draws) < drawn.planned:
        split["early_exit"] = _saved(drawn)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": spent.cached + judged.cached},
        "completion_tokens_details": {"reasoning_tokens": spent.reasoning + judged.reasoning},
        "caps": split,
    }


def _spent(drawn: Drawn, spent: Usage) -> dict[str, int]:
    return {
        "calls": len(drawn.draws),
        "prompt_tokens": spent.prompt,
        "completion_tokens": spent.output,
        "cached_tokens": spent.cached,
        "reasoning_tokens": spent.reasoning,
    }


def _sums(sums: Sums) -> dict[str, int]:
    return {
        "calls": sums.calls,
        "prompt_tokens": sums.asked,
        "completion_tokens": sums.output,
        "cached_tokens": sums.cached,
        "reasoning_tokens": sums.reasoning,
    }


def _stages(ledger: Ledger) -> list[dict[str, Any]]:
    return [
        {"stage": stage, "level": str(level), **_sums(sums)} for (stage, level), sums in ledger.lines.items()
    ]


def _saved(drawn: Drawn) -> dict[str, int]:
    """What was not drawn, and its tokens, reckoned at the mean of what was."""
    left = drawn.planned - len(drawn.draws)
    mean = fmean(one.sample.usage.prompt + one.sample.usage.output for one in drawn.draws)
    return {"planned": drawn.planned, "saved_samples": left, "saved_tokens_estimated": round(left * mean)}
