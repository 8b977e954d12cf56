"""What a judge turned out to be worth on the first cases, or that they do not tell."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from caps.core.judging import JudgeProfile
from caps.diagnostics.lasting import first_slot, gaps_of, lasting, links_of
from caps.diagnostics.latent import Weighed, chances, information, shares_of_high

LEAST_CASES = 10
LEAST_INFORMATION = 5.0  # verdicts on pairs of known truth; fewer would only repeat what was assumed


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """A profile, how much is behind it, which fields stayed as assumed, and why, if all of them did."""

    profile: JudgeProfile
    cases: int
    looks: int
    information: float
    assumed: tuple[str, ...] = ()
    silent: str | None = None


def learn(weighed: Sequence[Weighed], start: JudgeProfile) -> Learnt:
    """The profile that explains the looks, near the one to start from; that one, if they tell too little."""
    cases, told = len({one.look.case for one in weighed}), information(weighed, start)
    learnt = Learnt(profile=start, cases=cases, looks=len(weighed), information=told)
    everything = tuple(sorted(JudgeProfile.__dataclass_fields__))
    if cases < LEAST_CASES:
        words = f"only {cases} cases have two answers to compare; {LEAST_CASES} are wanted"
        return replace(learnt, assumed=everything, silent=words)
    if told < LEAST_INFORMATION:
        words = "nothing says which answers are likelier to be right: no labels, and votes too even"
        return replace(learnt, assumed=everything, silent=words)
    found = replace(start, **chances(weighed, start), **shares_of_high(weighed, start))
    gaps, linked = gaps_of(found), links_of(weighed)
    slot = first_slot(weighed, start, gaps)
    repeats, shared = lasting(weighed, linked, start, slot)
    found = replace(found, first_slot=slot, repeats=repeats, shared=shared)
    rounded = {name: round(getattr(found, name), 4) for name in everything}
    unseen = () if any(answers for _, answers in linked) else ("shared",)
    return replace(learnt, profile=replace(found, **rounded), assumed=unseen)
