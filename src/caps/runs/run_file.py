"""`run.json`: the resolved configuration of a run, its input, versions and digests."""

import errno
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from caps.config import RunConfig, identity
from caps.core.errors import InputError, SettingError
from caps.core.secrets import recorded_extra, shown_address
from caps.core.settings import settings_of
from caps.core.types import Case, Level
from caps.datasets.imports import open_cases
from caps.files import decode_json, join_paths, split_paths, write_file
from caps.prompts.reply_forms import TAGS
from caps.runs.shards import Shard
from caps.session.parts import make_strategy
from caps.session.resolve import Resolved
from caps.session.session import Learned, stated_config

FORMAT = 2
NAME = "run.json"
PACKAGES = {"caps": "caps-select", "aiohttp": "aiohttp", "msgspec": "msgspec"}  # key -> distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """The configuration and input of a run, and its summary once it has ended.

    `findings` names the finder of each domain, `prompt_digests` holds a digest of each template, and
    `cases_file` size and digest of the input. `shard` is the part of the cases that this run takes, such as
    2/4. `started` is when the run began, in seconds since 1970; a run that goes on keeps it.
    """

    config: RunConfig
    cases: str
    limit: int | None = None
    shard: str | None = None
    findings: Mapping[str, str] = field(default_factory=dict)
    prompt_digests: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    calibration: Mapping[str, Any] | None = None
    cases_file: Mapping[str, Any] | None = None
    summary: Mapping[str, Any] = field(default_factory=dict)
    started: float = 0.0

    def to_row(self) -> dict[str, Any]:
        """Return the file as plain data, without secrets in addresses and extra request fields."""
        row = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "config"}
        config = self.config.to_dict()
        for name in ("base_url", "judge_base_url"):
            config[name] = list(map(shown_address, config[name]))
        config["extra"] = recorded_extra(config["extra"])
        config["judges"] = list(map(_recorded_table, config["judges"]))
        config["generator"] = [_without_secrets(table) for table in config["generator"]]
        return {"format": FORMAT, "config": config, **row}

    @classmethod
    def from_row(cls, row: Mapping[str, Any], *, where: str) -> "RunFile":
        """Read what `to_row` wrote."""
        others = {name: row[name] for name in cls.__dataclass_fields__ if name in row and name != "config"}
        return cls(config=RunConfig.from_dict(row["config"], where=f"{where}: config"), **others)

    def read_cases(self, path: str | None = None) -> Iterator[Case | InputError]:
        """Read the cases of the run, as it read them; `path` is where they are now."""
        cases = islice(open_cases(path or self.cases, fields=self.config.map), self.limit)
        return cases if self.shard is None else Shard.parse(self.shard).take(cases)

    def write(self, folder: Path) -> None:
        """Write the file into the run folder, atomically."""
        write_file(folder / NAME, msgspec.json.format(msgspec.json.encode(self.to_row()), indent=2) + b"\n")

    def difference(self, other: "RunFile") -> str:
        """Name the first setting in which two runs differ; empty if there is none."""
        ours, theirs = self.config, other.config
        if judges_of(ours) != judges_of(theirs):
            return "model"
        before, now = identity(ours), identity(theirs)
        names = [name for name in before if before[name] != now[name]]
        names = [name for name in names if name not in ("model", "judge_model")]  # compared above
        if "settings" in names and _completed(ours) == _completed(theirs):
            names.remove("settings")
        if "confidence" in names and "auto" in (ours.confidence, theirs.confidence):
            names.remove("confidence")  # it is found out at the endpoint
        if "context_tokens" in names and None in (ours.context_tokens, theirs.context_tokens):
            names.remove("context_tokens")  # the endpoint reports it
        if "reply" in names and (
            "auto" in (ours.reply, theirs.reply) or {ours.reply, theirs.reply} <= {*TAGS}
        ):  # which form it is, and the server's name for it, is found out at the endpoint
            names.remove("reply")
        if self.calibration or other.calibration:  # fitted settings are fitted again
            names = [name for name in names if name != "settings"]
        if names:
            return names[0]
        shared = self.prompt_digests.keys() & other.prompt_digests.keys()
        changed = [name for name in shared if self.prompt_digests[name] != other.prompt_digests[name]]
        return f"prompt {changed[0]}" if changed else ""


def _recorded_table(row: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a judge without secrets in its addresses and extra request fields."""
    row = _without_secrets(row)
    if "extra" in row.get("settings", {}):
        row["settings"] = {**row["settings"], "extra": recorded_extra(row["settings"]["extra"])}
    return row


def _without_secrets(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a model without passwords in its addresses."""
    address = table.get("base_url")
    if isinstance(address, str):
        return {**table, "base_url": shown_address(address)}
    if isinstance(address, list):
        return {**table, "base_url": [shown_address(str(part)) for part in address]}
    return dict(table)


def _completed(config: RunConfig) -> dict[str, Any]:
    """The settings of the strategy; a field that an earlier version did not have is at its default."""
    try:
        usual = settings_of(make_strategy(config.strategy))
    except SettingError:  # the strategy was an object
        usual = {}
    return {**usual, **config.settings}


def judges_of(config: RunConfig) -> tuple[str | None, str | None]:
    """Return the names of the judges of full and partial views."""
    if config.judges:
        full, partial = (
            ", ".join(table.name for table in config.judges if level in table.levels)
            for level in (Level.FULL, Level.PARTIAL)
        )
        return full, partial
    if config.recorded is not None:
        name = f"{config.recorded_judge or config.recorded} (recorded)"
        return name, name
    model = config.judge_model or config.model
    return model, model


def new_run_file(
    resolved: Resolved,
    *,
    cases: str,
    limit: int | None,
    shard: Shard | None = None,
    learned: Learned | None = None,
    findings: Mapping[str, str],
) -> RunFile:
    """Create the file of a run that is about to start, with what was `learned` from its servers, if asked."""
    return RunFile(
        config=stated_config(resolved, learned),
        cases=join_paths(
            [one if one == "-" or "://" in one else str(Path(one).resolve()) for one in split_paths(cases)]
        ),
        limit=limit,
        shard=None if shard is None else str(shard),
        findings=dict(findings),
        prompt_digests=digests(resolved.templates),
        versions=versions(),
        started=resolved.started,
    )


def run_in(folder: Path) -> RunFile | None:
    """The run file of a folder; None if there is none, or a damaged one, which is reported later."""
    try:
        return read_run_file(folder)
    except (OSError, InputError):
        return None


def started_in(folder: Path | None, *, force: bool) -> float | None:
    """When the run in a folder began, if there is one that goes on."""
    before = None if folder is None or force else run_in(folder)
    return None if before is None else before.started


def read_run_file(folder: Path) -> RunFile:
    """Read the run file of a folder; file errors are raised as they are."""
    path = folder / NAME
    try:
        return RunFile.from_row(
            decode_json(read_regular_file(path), dict[str, Any], str(path)), where=str(path)
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: {error!r} is missing or wrong: was it written by this version?") from None
    except SettingError as error:
        raise InputError(str(error)) from None


def read_regular_file(path: Path) -> bytes:
    """Read a regular file; a FIFO, on which reading would block, is an error."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return path.read_bytes()


def check_prompts(file: RunFile, resolved: Resolved) -> None:
    """Refuse changed templates: the journal holds no replies to the changed prompts."""
    now = digests(resolved.templates)
    changed = [name for name, digest in file.prompt_digests.items() if now.get(name) != digest]
    if changed:
        raise InputError(
            f"the prompt {changed[0]} has changed since the run: name a folder with the old one as --prompts"
        )


def digests(templates: Mapping[str, str]) -> dict[str, str]:
    """Return a short digest of each prompt template."""
    return {name: sha256(text.encode()).hexdigest()[:16] for name, text in sorted(templates.items())}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the main packages."""
    installed = {"python": sys.version.partition(" ")[0]}
    for name, distribution in PACKAGES.items():
        try:
            installed[name] = version(distribution)
        except PackageNotFoundError:
            installed[name] = "unknown"
    return installed
