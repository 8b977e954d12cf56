"""The folder of a run that goes through Batch files: the folder of a run, with its steps beside it.

`run.json` is written first and holds all that later commands need. `step-001.jsonl` and so on are for the
provider; whatever else ends in `.jsonl` is taken for results. `failed.jsonl` has the items that failed,
`absorbed.json` the result files that were taken in, by size and time.

A file of requests is *out* as long as nothing of it has come back: what stands in it is not written again.
When something of it has come back, the rest of it is open like anything else.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import msgspec

from caps.core.errors import InputError, SettingError
from caps.files import FolderLock, append_file, file_errors, write_file
from caps.journal.store import Journal
from caps.models.batch_lines import key_in
from caps.models.failures import Failure, Failures
from caps.reports.run_file import RunFile, read_run_file
from caps.reports.rundir import refuse_others

FAILED = "failed.jsonl"
OWN = (FAILED, "selections.jsonl", "rulings.jsonl")
ABSORBED = "absorbed.json"
_STEP = re.compile(r"step-(\d+)(?:-(\d+))?\.jsonl")


class BatchFolder:
    """Reads and writes the folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def begun(self) -> bool:
        """Whether a run lives here."""
        return (self.path / "run.json").is_file()

    def begin(self, file: RunFile, *, force: bool = False) -> None:
        """Remember what makes the run; another run's folder is refused unless `force` says otherwise."""
        if self.begun and not force:
            before = self.file()
            different = file.difference(before) or ("cases" if before.cases != file.cases else "")
            different = different or ("limit" if before.limit != file.limit else "")
            if different:
                raise SettingError(
                    f"{self.path} holds a run with another {different!r}: name another --out, go on "
                    f"with  caps batch prepare {self.path}  or write over it with --force"
                )
            return
        with file_errors(f"--out {self.path}"):
            self.path.mkdir(parents=True, exist_ok=True)
            with FolderLock(self.path):
                if not force:
                    refuse_others(self.path, file)
                file.write(self.path)

    def file(self) -> RunFile:
        """What makes the run."""
        try:
            return read_run_file(self.path)
        except (OSError, msgspec.MsgspecError) as error:
            raise InputError(
                f"{self.path}: not the folder of a batch ({error}); caps batch prepare CASES --out makes one"
            ) from None

    def rename_limit(self, name: str) -> None:
        """From now on the limit on tokens has another name in the requests."""
        replace(self.file(), batch={"limit_name": name}).write(self.path)

    def steps(self) -> list[Path]:
        """The files of requests, in the order they were written."""
        found = [(match, path) for path in self.path.iterdir() if (match := _STEP.fullmatch(path.name))]
        return [
            path for _, path in sorted(found, key=lambda one: [int(part or 0) for part in one[0].groups()])
        ]

    def next_step(self) -> str:
        """What the next file is called."""
        numbers = [int(match[1]) for path in self.steps() if (match := _STEP.fullmatch(path.name))]
        return f"step-{max(numbers, default=0) + 1:03d}"

    def results(self) -> list[Path]:
        """Files that may hold results."""
        steps = set(self.steps())
        found = [path for ending in ("*.jsonl", "*.jsonl.gz") for path in self.path.glob(ending)]
        return sorted(path for path in found if path not in steps and path.name not in OWN)

    def fresh(self) -> list[Path]:
        """Those that were not taken in as they are now."""
        before = self._absorbed()
        return [path for path in self.results() if before.get(path.name) != _mark(path)]

    def note_absorbed(self, files: Iterable[Path]) -> None:
        """Files of this folder were taken in."""
        own = {path.name: _mark(path) for path in self.results()}
        taken = {path.name for path in files if path.resolve().parent == self.path.resolve()}
        marks = self._absorbed() | {name: mark for name, mark in own.items() if name in taken}
        write_file(self.path / ABSORBED, msgspec.json.encode(marks))

    def _absorbed(self) -> dict[str, list[int]]:
        try:
            return msgspec.json.decode((self.path / ABSORBED).read_bytes(), type=dict[str, list[int]])
        except (OSError, msgspec.MsgspecError):
            return {}  # taking a file in twice is harmless

    def sent(self) -> set[str]:
        """The keys of all requests that were ever written."""
        return {key for path in self.steps() for key in _keys(path)}

    def out(self, journal: Journal, failures: Failures) -> dict[Path, set[str]]:
        """Files of which nothing has come back yet, with the keys in them."""
        times: Counter[str] = Counter()
        waiting: dict[Path, set[str]] = {}
        for path in self.steps():
            keys = set(_keys(path))
            times.update(keys)
            back = journal.stamps(keys) or any(failures.returned(key) >= times[key] for key in keys)
            if not back:
                waiting[path] = keys
        return waiting

    def failures(self, tries: int) -> Failures:
        """What has failed so far."""
        try:
            rows = (self.path / FAILED).read_bytes().splitlines()
            return Failures(tries, [msgspec.json.decode(row, type=Failure) for row in rows if row])
        except FileNotFoundError:
            return Failures(tries)
        except (OSError, msgspec.MsgspecError) as error:
            raise InputError(
                f"{self.path / FAILED}: {error}; without it, what failed is asked again"
            ) from None

    def keep(self, failures: list[Failure]) -> None:
        """Add what has failed."""
        if failures:
            with file_errors(str(self.path / FAILED)), append_file(self.path / FAILED) as file:
                file.writelines(msgspec.json.encode(asdict(one)) + b"\n" for one in failures)


def _mark(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def _keys(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        for line in file:
            if (key := key_in(line)) is not None:
                yield key
