"""A generation template and a problem become the chat that asks a model for an answer.

A template is a chat: a line `[user]`, `[assistant]` or `[system]` begins a turn; without one it is a single
turn of the user. Turns are told apart before slots are filled, and slots are filled in one pass: a problem
can neither feign a turn nor have a slot of its own filled.
"""

import re

from caps.core.errors import SettingError
from caps.core.types import Message, Problem
from caps.prompts.render import DOMAINS

VERSION = "v1"
STYLES = ("plain", "instruct", "few-shot")

_TURN = re.compile(r"^\[(system|user|assistant)\]\n", re.MULTILINE)
_SLOT = re.compile(r"\{(problem|interface)\}")


def generation_name(style: str, domain: str, *, function: bool = False) -> str:
    """The file whose words ask for an answer; `function`: code that is called, not run on standard input."""
    kind = domain if domain in DOMAINS else "general"
    return f"{style}-{'function' if function and kind == 'code' else kind}.{VERSION}.txt"


def ask_for_answer(template: str, problem: Problem, *, interface: str = "") -> tuple[Message, ...]:
    """The chat to send: worked examples, earlier turns of the problem, its last question in the template.

    What the problem's system says goes first, as chat templates want it.
    """
    *examples, last = _turns(template)
    if last.role != "user" or "{problem}" not in last.content:
        raise SettingError("slot {problem} is missing from the last turn of a generation template")
    asked = [place for place, one in enumerate(problem.messages) if one.role == "user"]
    at = asked[-1] if asked else len(problem.messages) - 1
    values = {"problem": problem.messages[at].content, "interface": interface}
    question = Message("user", _SLOT.sub(lambda slot: values[slot[1]], last.content))
    before, after = problem.messages[:at], problem.messages[at + 1 :]
    system = [one for one in before if one.role == "system"]
    earlier = [one for one in before if one.role != "system"]
    return (*system, *examples, *earlier, question, *after)


def _turns(template: str) -> list[Message]:
    first, *rest = _TURN.split(template.strip())
    if not rest:
        return [Message("user", first)]
    return [Message(role, words.strip()) for role, words in zip(rest[::2], rest[1::2], strict=True)]
