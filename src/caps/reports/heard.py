"""What a judge saw and said in each game of a case: prompts rendered again, replies from the journal."""

from collections.abc import Iterator
from dataclasses import dataclass

from caps.core.errors import CapsError
from caps.core.types import Ask
from caps.journal.keys import request_key
from caps.judges.base import Bout
from caps.reports.figures import by_ask
from caps.reports.lines import Line, ask_of
from caps.reports.retold import Retelling


@dataclass(frozen=True, slots=True)
class Said:
    """One reply and how it was read; no text where the journal does not hold it."""

    text: str | None
    reasoning: str
    how: str
    cause: str | None
    finish: str


@dataclass(frozen=True, slots=True)
class Heard:
    """The prompt in pieces (candidates stand alone), whether it is what was sent, and the replies."""

    prompt: tuple[str, ...]
    exact: bool
    replies: tuple[Said, ...]


def heard_in(run: Retelling, bout: Bout | None, name: str) -> Iterator[Heard]:
    """The words of each game of a case, in its order."""
    lines = run.calls.get(name, [])
    keys = [line["key"] for line in lines if line.get("key")]
    stored = {} if run.journal is None else run.journal.get_many(keys)
    for tries in by_ask(lines):
        said = []
        for line in tries:
            if "attempt" in line:
                reply = stored.get(line["key"])
                text, thought = (None, "") if reply is None else (reply.text, reply.reasoning)
                said.append(Said(text, thought, line["how"], line["cause"], line["finish"]))
        prompt, exact = _prompt(run, bout, ask_of(tries[0]), tries[0])
        yield Heard(prompt, exact, tuple(said))


def _prompt(run: Retelling, bout: Bout | None, ask: Ask, line: Line) -> tuple[tuple[str, ...], bool]:
    if bout is None or run.judge is None:
        return (), False
    try:
        request = run.judge.request(bout, ask)
    except CapsError:  # a template that is no longer there
        return (), False
    words = "\n\n".join(message.content for message in request.messages)
    return tuple(cut(words, run.judge.shown(bout, ask))), request_key(request) == line.get("key")


def cut(words: str, blocks: list[str]) -> Iterator[str]:
    """The words in pieces, so that what is shown in many games is kept once; joined they are the same."""
    for block in blocks:
        if block:
            head, found, words = words.partition(block)
            yield head
            yield found
    yield words
