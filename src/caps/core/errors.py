"""Every exception this package raises on purpose; the first branch says who is at fault.

CapsError
├── UserError             you: a command line, a setting, a file
│   ├── SettingError      a name, field or value that is not allowed
│   ├── InputError        a file or case that cannot be read as what it should be
│   └── MissingExtraError an optional package that is not installed
├── AnswerError           whoever answered a contest: an engine, or the judge behind it
└── StrategyError         a strategy that broke the contract of `core.play`
"""


class CapsError(Exception):
    """Root of everything this package raises on purpose."""


class UserError(CapsError):
    """The user can mend it; the message says how."""


class SettingError(UserError):
    """A name, field or value that is not allowed."""


class InputError(UserError):
    """A file or case that cannot be read as what it should be."""


class MissingExtraError(UserError):
    """An optional package is missing."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package!r}: install it with  pip install 'caps[{extra}]'")


class AnswerError(CapsError):
    """A contest was given an answer that does not fit what it asked; the contest is unharmed."""


class StrategyError(CapsError):
    """A strategy asked or returned something the contract forbids: a bug in the strategy."""
