"""Words to settings: `name=value` pairs as given on a command line."""

from collections.abc import Iterable

from caps.core.errors import SettingError


def parse_assignments(words: Iterable[str], *, option: str = "--set") -> dict[str, str]:
    """Read `--set finalists=4` words into a mapping; a later word wins."""
    changes = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            raise SettingError(f"{option} {word!r}: write it as name=value")
        changes[name.strip()] = value.strip()
    return changes
