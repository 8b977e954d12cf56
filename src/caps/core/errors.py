"""All exceptions that this package raises on purpose; the first level says where the fault is."""

from typing import Any


class CapsError(Exception):
    """Base class of all exceptions of this package."""


class UserError(CapsError):
    """An error that the user can fix; the message says how."""


class SettingError(UserError):
    """A name, field or value that is not allowed."""


class NoEndpointError(SettingError):
    """No model, or no address of one, is configured."""


class InputError(UserError):
    """A file or case that cannot be read as what it should be.

    `case_number` is the place of the case in its file, from 1, if it is not that among the cases of the run.
    """

    case_number: int | None = None


#: The beginning of the name of a case that could not be read, which has none; its place follows.
UNREADABLE_CASE = "unreadable case "


class SlowTextError(InputError):
    """A text that could not be read within its limits of time and memory."""


class MissingExtraError(UserError):
    """An optional package is missing."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(package, extra, purpose)  # all of them, so that it can be pickled

    def __str__(self) -> str:
        package, extra, purpose = self.args
        return f"{purpose} needs {package!r}: install it with  pip install 'caps-select[{extra}]'"


class ModelError(CapsError):
    """The endpoint or the model behind it failed for good; `cause` is one word to count it by.

    `attempts` is the number of requests that the server may have seen and billed; `wait` is the number of
    seconds it asked to wait.
    """

    cause = "model"

    def __init__(self, message: str, *, attempts: int = 0, wait: float | None = None) -> None:
        super().__init__(message)
        self.attempts = attempts
        self.wait = wait


class AccessError(ModelError):
    """The key or the account was refused."""

    cause = "access"


class UnknownModelError(ModelError):
    """No model of that name is served."""

    cause = "unknown-model"


class TooLongError(ModelError):
    """Prompt and reply do not fit the model's context."""

    cause = "too-long"


class RefusedError(ModelError):
    """The request was refused, and asking again would not help."""

    cause = "refused"


class MissingFeatureError(ModelError):
    """The server does not offer a required feature."""

    cause = "missing-feature"


class UnreachableError(ModelError):
    """No server answers at the address."""

    cause = "unreachable"


class BusyError(ModelError):
    """Too many requests, or still loading, after every try."""

    cause = "busy"


class TimedOutError(ModelError):
    """No reply in time, after every try."""

    cause = "timeout"


class BrokenServerError(ModelError):
    """The server failed, after every try."""

    cause = "server"


class GarbledError(ModelError):
    """What came back is not a reply, after every try."""

    cause = "garbled"


class UnreadableJudgeError(ModelError):
    """Most replies of the judge cannot be read, so the run was stopped; `keep_going` lets it continue.

    `results` are the results of `select_many` that were finished by then, in the order of the cases.
    """

    cause = "unreadable"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.results: list[Any] = []


class JournalError(CapsError):
    """The journal's file cannot be used; nothing in it was overwritten."""


class NotRecordedError(JournalError):
    """A replay needs a reply that the journal does not hold."""


class BatchWaitingError(CapsError):
    """Results of a batch are not there yet; the message says where they belong.

    `failed` holds the names of cases that failed before anything was asked, each with the reason.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.failed: list[tuple[str, str]] = []


class SandboxError(CapsError):
    """The sandbox itself failed; nothing is known of the program that was to run in it."""


class AnswerError(CapsError):
    """A contest got an answer that does not fit its ask; the contest is unchanged."""


class StrategyError(CapsError):
    """A strategy broke the contract of `core.play`: a bug in the strategy."""
