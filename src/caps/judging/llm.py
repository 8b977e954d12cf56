"""A language model as the judge: render the prompt, call the model, parse the reply, retry if unreadable.

Invariants:

* The cost of a call is recorded before its reply is parsed.
* A reply that cannot be read is asked for again: as a sampled draw, because at temperature 0 a model repeats
  itself, and with twice the tokens if it was truncated. The last try asks for the short form, the verdict
  without reasoning. Then it is a tie of least weight, counted by its cause.
* A verdict without the code that the prompt asks for counts only if no text shown could fake one.
* A call that failed for good is `Unanswered`; only an error that every other call would have too is raised.
* An ask of which earlier runs could read no reply is asked again, under the next attempt number of its
  requests. Within a run the replies stay what they are, so that it can be resumed and replayed.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, get_args

from msgspec.structs import replace

from caps.core.domains import Domain
from caps.core.settings import check_settings, setting
from caps.core.text import shortened_line
from caps.core.types import Answer, Ask, Pairing, Rating, Solo, Unanswered, Usage, Verdict, shows_difference
from caps.costs.budget import Budget, UnlimitedBudget
from caps.evidence.domains import domain_named
from caps.evidence.entrants import shown_media
from caps.judging.base import Attempt, PreparedCase, Ruling
from caps.judging.payment import (
    DENSEST_BYTES,
    MOST_MEDIA,
    USUAL_REPLY,
    NoReply,
    ReplyHistory,
    pay,
    recall,
    tokens_at_most,
)
from caps.models.base import Completion, Model, Request
from caps.prompts.confidence import weigh
from caps.prompts.read import Imitation, Reading, fields_of, imitations, read_coded, read_reply
from caps.prompts.render import asks_for_code, find_template, render, shared_until, template_stem
from caps.prompts.reply_forms import (
    REPLIES,
    TAGS,
    ByCriterion,
    held_to,
    instructions,
    room_for,
    short_form,
    verdicts_by_criterion,
)

FURTHER_DRAW = 100
PROMPT_AT_MOST = 2000
SAMPLE_CHARACTERS = 200  # of an unreadable reply that is shown to the user
TOP_LOGPROBS = 10
UNREADABLE_RATING = 5
LONGEST_READ = 1_000_000  # characters of a text: reading more would hold up other calls
BLIND = "cannot see images"
OPEN = UnlimitedBudget()


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """Settings for asking a language model."""

    max_tokens: int = setting(4096, "tokens of a reply; doubled after a truncated one", least=1)
    retries: int = setting(2, "further tries when a reply cannot be read", least=0)
    draw_temperature: float = setting(0.7, "least temperature of further draws", least=0, most=2)
    temperature: float = setting(0.0, "temperature of the first draw", least=0, most=2)
    confidence: str = setting("verbal", "HIGH/LOW, or token probabilities", choices=("verbal", "logprobs"))
    reply: str = setting("free", "as the judge likes, or held to a form by the server", choices=REPLIES)

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, slots=True)
class JudgingModel:
    """The model that judges: its client, its name, and extra request fields.

    `sees` finds out whether it can see images and documents; without it, they are sent as they are.
    """

    model: Model
    name: str
    extra: Mapping[str, object] = field(default_factory=dict)
    sees: Callable[[], Awaitable[bool]] | None = None


class _Prompt(NamedTuple):
    """The template for a kind of ask: its name, its text, and what it asks for.

    The domain is kept so that its identity stays its own.
    """

    name: str
    template: str
    has_code: bool
    has_criteria: bool
    domain: Domain


class _ReadReply(NamedTuple):
    """A reply, how it was read, and what it says by each criterion."""

    completion: Completion
    reading: Reading
    criteria: ByCriterion


class LlmJudge:
    """Answers asks with a language model.

    `since` is when the run began: replies that were stored before are those of earlier runs.
    """

    def __init__(
        self,
        model: JudgingModel,
        templates: Mapping[str, str],
        settings: JudgeSettings | None = None,
        *,
        cache_hints: bool = False,
        since: float = 0.0,
    ) -> None:
        self._cache_hints, self._since = cache_hints, since
        self._history = ReplyHistory(USUAL_REPLY)
        self._model, self._templates = model, templates
        self._settings = settings or JudgeSettings()
        self._prompts: dict[tuple[str, int, bool], _Prompt] = {}

    async def rule(self, prepared: PreparedCase, ask: Ask, budget: Budget = OPEN) -> Ruling:
        """Ask until a reply can be read, with at most `retries` retries and within the budget."""
        prompt = self._prompt(prepared, ask)
        request = self._request(prepared, ask, prompt)
        code = prepared.code if prompt.has_code else None
        sees = self._model.sees
        if request.messages[0].media and sees is not None and not await sees():
            return Ruling(Unanswered(BLIND))
        request, first = await self._begin(prepared, ask, request, code)
        attempts: list[Attempt] = []
        reading, sample = None, ""
        for further in range(self._settings.retries + 1):
            reply = first if further == 0 else None
            completion = await pay(
                self._model.model, request, budget, self._history,
                stored=None if reply is None else reply.completion,
            )  # fmt: skip
            if isinstance(completion, NoReply):
                if completion.shortage is not None and reading is not None:
                    break
                tried = (*attempts, *completion.attempts)
                return completion.ruling(tried)
            if reply is None:
                reply = self._read(prepared, ask, completion, code)
            reading, by_criterion = reply.reading, reply.criteria
            attempts.append(Attempt.of(completion, reading.how, reading.cause))
            if reading.answer is not None:
                answer = reading.answer
                if self._settings.confidence == "logprobs":
                    read = self._reader(prepared, ask, code)
                    spoken = completion.logprobs, completion.text
                    answer = weigh(ask, *spoken, reading, partial(read, truncated=False)) or answer
                return Ruling(
                    answer, tuple(attempts), None, reading.winner, reading.confidence, criteria=by_criterion
                )
            sample = shortened_line(completion.text, SAMPLE_CHARACTERS)
            request = self._again(prepared, ask, request, further + 1, reading)
        cause = reading.cause if reading is not None else None
        return Ruling(_unreadable(ask), tuple(attempts), malformed=cause or "no-tag", sample=sample)

    async def _begin(
        self, prepared: PreparedCase, ask: Ask, request: Request, code: str | None
    ) -> "tuple[Request, _ReadReply | None]":
        """The first request of an ask in this run, and the reply if the journal holds one.

        The attempt number is the first under which earlier runs did not try as often as is allowed without
        being able to read a reply.
        """
        while self._since:
            tries = await self._stored_tries(prepared, ask, request, code)
            if len(tries) <= self._settings.retries or self._is_usable(tries[-1]):
                return request, tries[0] if tries else None
            request = replace(request, attempt=request.attempt + 1)
        return request, None

    async def _stored_tries(
        self, prepared: PreparedCase, ask: Ask, request: Request, code: str | None
    ) -> "list[_ReadReply]":
        """The tries of an ask that the journal holds, in order, up to the first that this run can use."""
        tries = list[_ReadReply]()
        for further in range(self._settings.retries + 1):
            stored = await recall(self._model.model, request)
            if stored is None:
                break
            tries.append(self._read(prepared, ask, stored, code))
            if self._is_usable(tries[-1]):
                break
            request = self._again(prepared, ask, request, further + 1, tries[-1].reading)
        return tries

    def _is_usable(self, read: "_ReadReply") -> bool:
        """Whether a stored reply can be read, or is one of this run."""
        return read.reading.answer is not None or read.completion.stored_at >= self._since

    def _read(
        self, prepared: PreparedCase, ask: Ask, completion: Completion, code: str | None
    ) -> "_ReadReply":
        """Parse a reply; one that is far longer than any request allows is unreadable."""
        text, truncated = completion.text, completion.finish == "length"
        if len(text) > LONGEST_READ:
            return _ReadReply(completion, Reading(None, "none", "no-tag"), ())
        criteria = self._criteria(prepared, self._prompt(prepared, ask)) if prepared.case.criteria else 0
        apart = verdicts_by_criterion(ask, text, code, criteria) if criteria else ()
        if code is not None:
            reading = read_coded(ask, text, code=code)
            if reading is not None:
                return _ReadReply(completion, reading, apart)
        read = self._reader(prepared, ask, code)
        return _ReadReply(completion, read(text, truncated=truncated), apart)

    def _reader(self, prepared: PreparedCase, ask: Ask, code: str | None) -> "partial[Reading]":
        """The function that reads replies to an ask, given what the texts shown could be mistaken for."""
        imitated = self._imitated(prepared, ask)
        return partial(read_reply, ask, nonce=prepared.nonce, code=code, imitated=imitated)

    def max_usage(self, prepared: PreparedCase, ask: Ask) -> Usage:
        """All tries with full replies; the prompt is estimated from the size of its texts."""
        texts = (prepared.case.problem.text, *prepared.case.criteria, *prepared.evidence.shown(ask))
        shown = sum(len(text.encode("utf-8", "replace")) for text in texts)
        media = (
            *prepared.case.problem.media,
            *(m for one in ask.entrants for m in prepared.case.candidates[one].media),
        )
        shown += MOST_MEDIA * DENSEST_BYTES * sum(one.tokens for one in media)
        tries = self._settings.retries + 1
        prompt = tries * (tokens_at_most(2 * shown) + PROMPT_AT_MOST)
        return Usage(prompt, (2 * tries - 1) * self._room(ask, prepared.code))

    def request(self, prepared: PreparedCase, ask: Ask) -> Request:
        """The first request for an ask."""
        return self._request(prepared, ask, self._prompt(prepared, ask))

    def _request(
        self, prepared: PreparedCase, ask: Ask, prompt: "_Prompt", *, short: bool = False
    ) -> Request:
        code = prepared.code if prompt.has_code else None
        reply, criteria = self._settings.reply, self._criteria(prepared, prompt)
        views = prepared.evidence.shown(ask)
        media = [prepared.case.candidates[one].media for one in ask.entrants]
        messages = render(
            prompt.template,
            problem=prepared.case.problem,
            views=views,
            media=[shown_media(own, view) for own, view in zip(media, views, strict=True)]
            if any(media)
            else (),
            nonce=prepared.nonce,
            code=prepared.code,
            criteria=prepared.case.criteria,
            quoting=prepared.quoting if code is None else prepared.showing,
            ending=short_form(ask, code) if short else instructions(reply, ask, code, criteria),
        )
        return Request(
            messages,
            self._model.name,
            template=prompt.name,
            max_tokens=self._room(ask, code),
            temperature=self._draw_temperature if ask.draw else self._settings.temperature,
            seed=ask.draw or None,
            draw=ask.draw,
            top_logprobs=TOP_LOGPROBS if self._settings.confidence == "logprobs" else 0,
            extra={**held_to(reply, ask, code, criteria), **self._model.extra},
            group=prepared.nonce,  # one per case: its prompts begin with the same problem
            cache_at=shared_until(messages[0].content, prepared.nonce) if self._cache_hints else (),
        )

    def shown(self, prepared: PreparedCase, ask: Ask) -> list[str]:
        """The views of an ask as quoted in its prompt."""
        quoting = prepared.showing if self._prompt(prepared, ask).has_code else prepared.quoting
        return [quoting(text, prepared.nonce) for text in prepared.evidence.shown(ask)]

    def _prompt(self, prepared: PreparedCase, ask: Ask) -> "_Prompt":
        """The template for an ask; found once for asks of the same kind."""
        case, difference = prepared.case, shows_difference(prepared.evidence.entrants, ask)
        domain, criteria = domain_named(case.domain), bool(case.criteria)
        kind = (template_stem(ask, difference=difference), id(domain), criteria)
        prompt = self._prompts.get(kind)
        if prompt is None:
            name, template = find_template(
                self._templates, ask, domain, criteria=criteria, difference=difference
            )
            prompt = self._prompts[kind] = _Prompt(
                name, template, asks_for_code(template), "{criteria}" in template, domain
            )
        return prompt

    def _imitated(self, prepared: PreparedCase, ask: Ask) -> tuple[Imitation, ...]:
        """What the texts shown could be mistaken for if the judge repeats them.

        One that is too long to look through could be mistaken for anything.
        """
        imitated = set[Imitation]()
        for text in (*(one.content for one in prepared.case.problem.messages), *prepared.evidence.shown(ask)):
            key = (text, fields_of(ask))
            if key not in prepared.imitated:
                is_short = len(text) <= LONGEST_READ
                prepared.imitated[key] = imitations(text, ask) if is_short else get_args(Imitation)
            imitated.update(prepared.imitated[key])
        return tuple(sorted(imitated))

    @staticmethod
    def _criteria(prepared: PreparedCase, prompt: "_Prompt") -> int:
        """How many criteria a prompt asks by."""
        return len(prepared.case.criteria) if prompt.has_criteria else 0

    def _room(self, ask: Ask, code: str | None) -> int:
        """Maximum tokens of a reply; bare tags need few."""
        most = self._settings.max_tokens
        return min(most, room_for(ask, code)) if self._settings.reply in TAGS else most

    def _again(
        self, prepared: PreparedCase, ask: Ask, request: Request, further: int, reading: Reading
    ) -> Request:
        """The next request: a sampled draw, with twice the tokens after a truncation; the last in short form.

        A reply that the server holds to a form is drawn again: the form of the reply is not at fault.
        """
        prompt = self._prompt(prepared, ask)
        if 1 < further == self._settings.retries and self._settings.reply == "free":
            return replace(self._request(prepared, ask, prompt, short=True), attempt=request.attempt)
        draw = ask.draw + FURTHER_DRAW * further
        room = self._room(ask, prepared.code if prompt.has_code else None)
        more = 2 if reading.cause == "truncated" else 1
        temperature = self._draw_temperature
        return replace(request, draw=draw, seed=draw, temperature=temperature, max_tokens=more * room)

    @property
    def _draw_temperature(self) -> float:
        return max(self._settings.draw_temperature, self._settings.temperature)


def _unreadable(ask: Ask) -> Answer:
    """The answer for an unreadable reply: a tie, the middle rating, or no pick."""
    if isinstance(ask, Pairing):
        return Verdict(UNREADABLE_RATING, UNREADABLE_RATING)
    return Rating(UNREADABLE_RATING) if isinstance(ask, Solo) else Unanswered("malformed")
