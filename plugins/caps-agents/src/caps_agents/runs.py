"""Runs of agents: messages and tool calls in the chat format of OpenAI.

The text of a candidate is the JSON list of its messages after the task (or of its steps in ATIF):
`assistant` messages with `tool_calls`, `tool` messages with their results, and, where the log states it, a
last message of role `exit` that says how the run ended. `answer` of the candidate is its final state: a diff
or an answer. Reading never fails: what is no run is None.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from caps import Candidate, InputError, signature_named, view_named
from caps_agents.messages import message_text, messages_of
from caps_agents.patches import looks_like_patch, patch_signature, patch_summary
from caps_agents.shortening import cut

MAX_CHARACTERS = 50_000_000
LONGEST_OUTPUT, LONGEST_CALL, LONGEST_TEXT = 3_000, 6_000, 8_000  # characters of one part of a full view
PLAN, FINAL, DIFF, LAST_CALL, LAST_OUTPUT, ERROR = 600, 1_500, 2_000, 500, 700, 300  # of a partial view
LAST_STEPS, SHOWN_ERRORS = 3, 2
SUBMITTED = re.compile(r"submitted|success|finish|complete|done|stop", re.IGNORECASE)
UNFINISHED = re.compile(r"limit|exceed|error|timeout|exit_|cancel|fail|max_|stuck", re.IGNORECASE)
_SUBMITS = re.compile(
    r"submit|finish|final_?answer|complete_?task|task_?complete|attempt_completion", re.IGNORECASE
)
_FAILED = re.compile(
    r"^Traceback \(most recent|\berror:|\bError:|command not found|No such file", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call: its name, and its arguments as text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Step:
    """What an agent said and called, and what it got back; `failed` counts results that show errors."""

    text: str
    calls: tuple[Call, ...] = ()
    results: tuple[str, ...] = ()

    @property
    def errors(self) -> tuple[str, ...]:
        """The results that report a failure."""
        return tuple(result for result in self.results if _is_error(result))


@dataclass(frozen=True, slots=True)
class Run:
    """The steps of a run, and how it ended if its log says so."""

    steps: tuple[Step, ...]
    ending: str = ""

    @property
    def finished(self) -> bool:
        """Whether the agent ended the run itself, rather than a limit or an error."""
        if self.ending:
            return bool(SUBMITTED.search(self.ending)) and not UNFINISHED.search(self.ending)
        last = self.steps[-1]
        return not last.calls or any(
            _SUBMITS.search(f"{call.name} {call.arguments[:500]}") for call in last.calls
        )

    @property
    def final_text(self) -> str:
        """The last words of the agent."""
        return next((step.text for step in reversed(self.steps) if step.text.strip()), "")

    @property
    def final_diff(self) -> str:
        """The diff that the last step prints or states, if there is one."""
        for part in (self.steps[-1].text, *self.steps[-1].results):
            if looks_like_patch(part):
                return part
        return ""


@lru_cache(maxsize=8)  # a signature, two views and a finding read the same text
def read_run(text: str) -> Run | None:
    """The run in the text of a candidate."""
    if text.lstrip()[:1] != "[" or len(text) > MAX_CHARACTERS:
        return None
    try:
        messages = messages_of(json.loads(text))
    except (InputError, ValueError, RecursionError, MemoryError):
        return None
    steps, ending = list[Step](), ""
    for message in messages:
        role, content = message.get("role"), message_text(message.get("content"))
        if role == "assistant":
            steps.append(Step(content, tuple(_calls(message.get("tool_calls")))))
        elif role == "exit":
            ending = content or "unknown"
        elif steps:
            steps[-1] = replace(steps[-1], results=(*steps[-1].results, _output(content)))
    return Run(tuple(steps), ending) if steps else None


def _calls(calls: object) -> Iterator[Call]:
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, Mapping):
            yield Call(str(function.get("name", "")), _arguments(function.get("arguments")))


def _arguments(value: object) -> str:
    """The arguments of a call as text; of a single argument its value alone."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError, MemoryError):
            return str(value)
    if isinstance(value, dict) and len(value) == 1 and isinstance(only := next(iter(value.values())), str):
        return only
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _output(content: str) -> str:
    """A result as text; of a JSON object with an output, the exit code and the output."""
    if not content.startswith("{"):
        return content
    try:
        value: Any = json.loads(content)
    except (ValueError, RecursionError, MemoryError):
        return content
    if not isinstance(value, dict) or not isinstance(value.get("output"), str):
        return content
    code = value.get("returncode", value.get("exit_code"))
    return f"(exit code {code})\n{value['output']}" if code is not None else value["output"]


def _is_error(result: str) -> bool:
    if result.startswith("(exit code "):
        return not result.startswith(("(exit code 0)", "(exit code -1)"))
    return _FAILED.search(result[:20_000]) is not None


# Signature and views


def final_state(candidate: Candidate) -> str | None:
    """The final state of a run: its stated answer or diff, or the diff its last step shows; else None."""
    if candidate.answer and candidate.answer.strip():
        return patch_signature(Candidate(candidate.answer)) or signature_named("general-answer")(candidate)
    run = read_run(candidate.text)
    if run is None:
        return signature_named("general-answer")(candidate)
    return patch_signature(Candidate(run.final_diff)) if run.final_diff else None


def run_full(candidate: Candidate) -> str:
    """The whole run as a transcript, with long outputs shortened where marks say so."""
    run = read_run(candidate.text)
    if run is None:
        return view_named("full")(candidate)
    pieces = [_overview(run)]
    for number, step in enumerate(run.steps, start=1):
        pieces += _shown_step(number, step, (LONGEST_TEXT, LONGEST_CALL, LONGEST_OUTPUT))
    if candidate.answer and candidate.answer.strip():
        pieces.append(f"Final state:\n{candidate.answer}")
    return "\n".join(pieces)


def run_summary(candidate: Candidate) -> str:
    """The plan, some errors, the last steps, the last words and the final diff of a run."""
    run = read_run(candidate.text)
    if run is None:
        return view_named("general-summary")(candidate)
    pieces, count = [_overview(run)], len(run.steps)
    plan = next((step.text for step in run.steps if step.text.strip()), "")
    if plan and plan != run.final_text:
        pieces.append(f"Plan: {cut(plan, PLAN)}")
    errors = [(number, error) for number, step in enumerate(run.steps, start=1) for error in step.errors]
    for number, error in errors[-SHOWN_ERRORS:]:
        if number <= count - LAST_STEPS:
            pieces.append(f"Error in step {number}: {cut(error, ERROR)}")
    if count > LAST_STEPS:
        pieces.append(f"[...{count - LAST_STEPS} earlier steps left out...]")
    for number in range(max(1, count - LAST_STEPS + 1), count + 1):
        pieces += _shown_step(number, run.steps[number - 1], (FINAL, LAST_CALL, LAST_OUTPUT))
    if run.steps[-1].text.strip() == "" and run.final_text:
        pieces.append(f"Last words: {cut(run.final_text, FINAL)}")
    state = candidate.answer or ("" if run.steps[-1].text == run.final_diff else run.final_diff)
    if state:
        pieces.append(f"Final state:\n{cut(patch_summary(Candidate(state)), DIFF)}")
    return "\n".join(pieces)


def _overview(run: Run) -> str:
    calls = sum(len(step.calls) for step in run.steps)
    errors = sum(len(step.errors) for step in run.steps)
    how = (
        "ended by itself"
        if run.finished
        else f"did not end by itself{f' ({run.ending})' if run.ending else ''}"
    )
    return f"{len(run.steps)} steps, {calls} tool calls, {errors} of them with errors; the run {how[:200]}"


def _shown_step(number: int, step: Step, longest: Sequence[int]) -> Iterator[str]:
    text, arguments, output = longest
    if step.text.strip():
        yield f"[step {number}] says: {cut(step.text.strip(), text)}"
    for call in step.calls:
        yield f"[step {number}] calls {call.name}: {cut(call.arguments, arguments)}"
    for result in step.results:
        yield f"[step {number}] gets: {cut(result.strip(), output)}"
