"""A section of a TOML file, read strictly: what is missing, of the wrong kind or unknown is named."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from caps.core.errors import SettingError
from caps.core.settings import nearest

T = TypeVar("T")
KINDS = {
    str: "a text", int: "a whole number", float: "a number", bool: "true or false", list: "a list",
    dict: "a table",
}  # fmt: skip


class Section:
    """Values to be taken one by one; `finish` refuses what nobody took."""

    def __init__(self, values: Mapping[str, Any], file: str, where: str = "") -> None:
        self._left, self._file, self._where = dict(values), file, where
        self._known: list[str] = []

    def take(self, name: str, kind: type, default: Any = ...) -> Any:
        """The value under a name, of this kind; without a default it must be there."""
        self._known.append(name)
        if name not in self._left:
            if default is ...:
                raise self.wrong(name, f"is missing; {KINDS[kind]} is wanted")
            return default
        value = self._left.pop(name)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.wrong(name, f"must be {KINDS[kind]}, not {value!r}")
        return value

    def texts(self, name: str, default: Any = ...) -> tuple[str, ...]:
        """A list of texts."""
        values = self.take(name, list, default)
        for value in values:
            if not isinstance(value, str):
                raise self.wrong(name, f"must be a list of texts; {value!r} is none")
        return tuple(values)

    def tables(self, name: str) -> Iterator["Section"]:
        """The tables of a list, each a section; texts among them are sections of their name alone."""
        for place, value in enumerate(self.take(name, list)):
            where = f"{self._where}{name}[{place}]."
            told = {"name": value} if isinstance(value, str) else value
            if not isinstance(told, dict):
                raise self.wrong(f"{name}[{place}]", f"must be a table, not {value!r}")
            yield Section(told, self._file, where)

    def table(self, name: str) -> "Section":
        """A table as a section; empty where it is absent."""
        return Section(self.take(name, dict, {}), self._file, f"{self._where}{name}.")

    @property
    def place(self) -> tuple[str, str]:
        """The file, and where in it this section stands."""
        return self._file, self._where

    def rest(self) -> dict[str, Any]:
        """Everything nobody took."""
        left, self._left = self._left, {}
        return left

    def finish(self) -> None:
        """Refuse what is left."""
        for name in self._left:
            raise self.wrong(
                name, f"no such key; {nearest(name, self._known)}keys are {', '.join(self._known)}"
            )

    def wrong(self, name: str, words: str) -> SettingError:
        """An error that names the file and the key."""
        return SettingError(f"{self._file}: {self._where}{name}: {words}")

    def checked(self, name: str, make: Callable[[], T]) -> T:
        """Make something of the value under a name; its complaint is told with file and key."""
        try:
            return make()
        except SettingError as error:
            raise self.wrong(name, str(error)) from None
