"""Cases are prepared for judging: signatures, views, the fence's nonce; long ones in a worker process."""

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

from caps.core.counting import estimate_tokens
from caps.core.types import Candidate, Case, Problem
from caps.evidence.entrants import Described, Read, describe, described, read_candidates
from caps.evidence.profiles import Profile, profile_named, with_findings, with_views
from caps.judges.base import Bout
from caps.prompts.fence import nonce_for, quote
from caps.text_workers import LONG_TEXT, TextWorkers

LONG_CODE = 16_000  # characters: parsing a program takes a hundred times as long as cutting a text
LIGHT = frozenset({"math-answer", "math-equivalent", "general-text"})  # signatures that parse no program


@dataclass(frozen=True, slots=True)
class CasePreparation:
    """How a case is prepared: by the profile of its domain, or a named one, with single views replaced.

    With `findings`, candidates that were found to behave alike count as equal. Call it to prepare a case
    here and now; `in_worker` prepares a long one elsewhere, with the same result.
    """

    profile: str | None = None
    views: tuple[tuple[str, str], ...] = ()
    findings: bool = False

    def __call__(self, case: Case) -> Bout:
        """Prepare a case in this process."""
        return _bout(case, describe(case, self.profile_of(case), estimate_tokens))

    def profile_of(self, case: Case) -> Profile:
        """The names of the signature and the views of a case."""
        return _profile(self.profile or case.domain, self.views, self.findings)

    def is_long(self, case: Case) -> bool:
        """Whether preparing a case could hold up an event loop; never where a worker would not know how."""
        profile = self.profile_of(case)
        limit = LONG_TEXT if profile.signature in LIGHT else LONG_CODE
        names = (profile.signature, profile.partial, profile.full)
        return size_of(case) > limit and not any(name.startswith("__main__") for name in names)

    async def in_worker(self, case: Case, texts: TextWorkers, until: float | None = None) -> Bout:
        """Prepare a case in a worker process, its texts escaped too; `until` is a time of the loop's clock.

        Raises `SlowTextError` where that takes too long.
        """
        work = partial(prepare_texts, case.problem, case.candidates, self.profile_of(case))
        done = await texts.run(work, size=size_of(case), limit=0, until=until)
        pairs = zip(case.candidates, done.read, strict=True)
        ready = described(case, [_rebuilt(candidate, read) for candidate, read in pairs], estimate_tokens)
        bout = Bout(case, ready, done.nonce, estimate_tokens(case.problem.text))
        for text, quoted in zip(_shown(case.problem, ready.views), done.quoted, strict=True):
            bout.remember(text, text if quoted is None else quoted)
        return bout


class PreparedTexts(NamedTuple):
    """What a worker makes of a case's texts; None stands for a text that we have already.

    That is the candidate's own text for a full view, the full view for a partial one, and the text itself
    for one that was quoted.
    """

    read: tuple[tuple[str | None, str | None, str | None], ...]
    nonce: str
    quoted: tuple[str | None, ...]


def prepare_texts(problem: Problem, candidates: tuple[Candidate, ...], profile: Profile) -> PreparedTexts:
    """Do all of the reading and escaping that a case may need."""
    read = read_candidates(candidates, profile)
    views = tuple((shown, whole) for _, shown, whole in read)
    nonce = nonce_for(problem.text, [view for pair in views for view in pair])
    rows = [
        (signature, None if shown == whole else shown, None if whole == one.text else whole)
        for one, (signature, shown, whole) in zip(candidates, read, strict=True)
    ]
    quoted = ((text, quote(text, nonce)) for text in _shown(problem, views))
    return PreparedTexts(tuple(rows), nonce, tuple(None if one == text else one for text, one in quoted))


def size_of(case: Case) -> int:
    """Characters of a case: those of its problem and of all its candidates."""
    candidates = sum(len(one.text) + len(one.code or "") + len(one.answer or "") for one in case.candidates)
    return candidates + sum(len(message.content) for message in case.problem.messages)


def _bout(case: Case, ready: Described) -> Bout:
    statement = case.problem.text
    shown = [view for pair in ready.views for view in pair]
    return Bout(case, ready, nonce_for(statement, shown), estimate_tokens(statement))


def _rebuilt(candidate: Candidate, read: tuple[str | None, str | None, str | None]) -> Read:
    signature, shown, whole = read
    whole = candidate.text if whole is None else whole
    return signature, whole if shown is None else shown, whole


def _shown(problem: Problem, views: tuple[tuple[str, str], ...]) -> list[str]:
    """All that a prompt may quote, each text once: the problem's messages and every view."""
    messages = (message.content for message in problem.messages)
    return list(dict.fromkeys([*messages, *(view for pair in views for view in pair)]))


@lru_cache(maxsize=64)
def _profile(name: str, views: tuple[tuple[str, str], ...], findings: bool) -> Profile:  # noqa: FBT001
    known = profile_named(name)
    return with_views(with_findings(known) if findings else known, dict(views))
