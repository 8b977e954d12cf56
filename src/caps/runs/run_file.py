"""`run.json`: the configuration of a run with everything derived, its input, versions and digests.

There is one format. What version 0.1 wrote is converted when it is read, so it can be reported and replayed.
"""

import errno
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from caps.building import make_strategy
from caps.config import RunConfig
from caps.core.errors import InputError, SettingError
from caps.core.secrets import recorded_extra, shown_address
from caps.core.settings import settings_of
from caps.files import write_file
from caps.runner import Runner

FORMAT = 2
NAME = "run.json"
PACKAGES = {
    "caps": "caps-select",
    "aiohttp": "aiohttp",
    "msgspec": "msgspec",
}  # key in the file -> distribution
#: Settings that decide what is asked and chosen; two runs that differ in another one are the same run.
DECIDING = (
    "judge", "strategy", "settings", "skip_failing", "seed", "calibrate", "max_tokens", "max_tokens_e1",
    "reply_format", "extra", "extra_e1", "profile", "views", "domain", "hard_evidence", "prompt_version",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """What makes a run, and in the end what came of it.

    `findings` names what looked into which domain, `prompt_digests` the words of each template. `batch` holds
    what a run through Batch files needs beside its config, `cases_file` size and digest of the input.
    """

    config: RunConfig
    cases: str
    limit: int | None = None
    findings: Mapping[str, str] = field(default_factory=dict)
    prompt_digests: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    calibration: Mapping[str, Any] | None = None
    cases_file: Mapping[str, Any] | None = None
    batch: Mapping[str, Any] | None = None
    summary: Mapping[str, Any] = field(default_factory=dict)

    def to_row(self) -> dict[str, Any]:
        """The file as plain data, without what may be secret in addresses and extra request fields."""
        row = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "config"}
        config = self.config.to_dict()
        for name in ("base_url", "judge_base_url", "judge_base_url_e1"):
            config[name] = [shown_address(one) for one in config[name]]
        for name in ("extra", "extra_e1"):
            config[name] = recorded_extra(config[name])
        return {"format": FORMAT, "config": config, **row}

    @classmethod
    def from_row(cls, row: Mapping[str, Any], *, where: str) -> "RunFile":
        """The file whose `to_row` this is, or one of version 0.1."""
        if "config" not in row:
            return _of_version_0_1(row, where)
        known = {name: row[name] for name in cls.__dataclass_fields__ if name in row and name != "config"}
        return cls(config=RunConfig.from_dict(row["config"], where=f"{where}: config"), **known)

    def write(self, folder: Path) -> None:
        """Write the file into the folder of its run, whole or not at all."""
        write_file(folder / NAME, msgspec.json.format(msgspec.json.encode(self.to_row()), indent=2) + b"\n")

    def difference(self, other: "RunFile") -> str:
        """The first setting by which two runs differ, or nothing."""
        ours, theirs = self.config, other.config
        if (self.batch is None) != (other.batch is None):
            return "engine"
        if judges_of(ours) != judges_of(theirs):
            return "model"
        names = [name for name in DECIDING if getattr(ours, name) != getattr(theirs, name)]
        if "settings" in names and _completed(ours) == _completed(theirs):
            names.remove("settings")
        for name in ("extra", "extra_e1"):
            if recorded_extra(getattr(ours, name)) == recorded_extra(getattr(theirs, name)):
                names = [one for one in names if one != name]
        confidences = {ours.confidence, theirs.confidence}
        if (
            len(confidences) > 1 and "auto" not in confidences
        ):  # `auto` is not decided before an endpoint is tried
            names.append("confidence")
        if self.calibration or other.calibration:  # what was fitted is fitted again
            names = [name for name in names if name != "settings"]
        if names:
            return names[0]
        shared = self.prompt_digests.keys() & other.prompt_digests.keys()
        changed = [name for name in shared if self.prompt_digests[name] != other.prompt_digests[name]]
        return f"prompt {changed[0]}" if changed else ""


def _completed(config: RunConfig) -> dict[str, Any]:
    """The settings of the strategy; a field that an earlier version did not have is at its default."""
    try:
        usual = settings_of(make_strategy(config.strategy))
    except SettingError:  # the strategy was an object
        usual = {}
    return {**usual, **config.settings}


def judges_of(config: RunConfig) -> tuple[str | None, str | None]:
    """The names of the models that judge full and partial views."""
    full = config.judge_model or config.model
    return full, config.judge_model_e1 or full


def run_file_of(
    runner: Runner, *, cases: str, limit: int | None, confidence: str, findings: Mapping[str, str]
) -> RunFile:
    """The file of a run that is about to begin."""
    return RunFile(
        config=runner.recorded(confidence),
        cases=cases if cases == "-" or "://" in cases else str(Path(cases).resolve()),
        limit=limit,
        findings=dict(findings),
        prompt_digests=digests(runner.templates),
        versions=versions(),
    )


def read_run_file(folder: Path) -> RunFile:
    """Read what makes the run of a folder; raises what reading a file raises."""
    path = folder / NAME
    row = msgspec.json.decode(regular_bytes(path), type=dict[str, Any])
    try:
        return RunFile.from_row(row, where=str(path))
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: {error!r} is missing or wrong: was it made by this version?") from None
    except SettingError as error:
        raise InputError(str(error)) from None


def regular_bytes(path: Path) -> bytes:
    """The content of a file of a run; anything but a regular file is no such file, and is not waited for."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return path.read_bytes()


def check_prompts(file: RunFile, runner: Runner) -> None:
    """Refuse changed words: they are other prompts, and nothing of the journal would be found."""
    now = digests(runner.templates)
    changed = [name for name, digest in file.prompt_digests.items() if now.get(name) != digest]
    if changed:
        raise InputError(
            f"the prompt {changed[0]} has changed since the run: put its old words into --prompts"
        )


def digests(templates: Mapping[str, str]) -> dict[str, str]:
    """A short digest of each prompt template."""
    return {name: sha256(text.encode()).hexdigest()[:16] for name, text in sorted(templates.items())}


def versions() -> dict[str, str]:
    """The versions of what a run is made with."""
    found = {"python": sys.version.partition(" ")[0]}
    for name, distribution in PACKAGES.items():
        try:
            found[name] = version(distribution)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


def _of_version_0_1(row: Mapping[str, Any], where: str) -> RunFile:
    """Convert the flat file of version 0.1."""
    judge, price = row["judge"], row.get("price") or {}
    budgets = row["budget"]
    settings = {name: value for name, value in row["strategy"].items() if name != "name"}
    same = row.get("model_e1") is None
    values = {
        "model": row["model"],
        "base_url": row["base_url"],
        "judge_model_e1": row.get("model_e1"),
        "judge_base_url_e1": () if same else row.get("base_url_e1") or row["base_url"],
        "confidence": judge["confidence"],
        "max_tokens": judge["max_tokens"],
        "reply_format": judge.get("reply"),
        "extra": row["extra"],
        "prompts": row["prompts_folder"],
        "prompt_version": "v1",
        "strategy": row["strategy"]["name"],
        "settings": settings,
        "skip_failing": settings.get("shortlist") == "tests",
        "seed": row["seed"],
        "profile": row["profile"],
        "views": row["views"],
        "hard_evidence": row.get("hard_evidence") or ("auto" if row.get("findings") else "off"),
        "sandbox": row.get("sandbox") or "auto",
        "journal": row["journal"],
        **{f"price_{name}": value for name, value in price.items()},
        **{f"budget_{name}": value for name, value in budgets["case"].items()},
        **{f"budget_total_{name}": value for name, value in budgets["total"].items()},
    }
    batch = None
    if "batch" in row:
        values |= {"engine": "batch", "batch": row["batch"]}
        batch = {"limit_name": row.get("limit_name", "max_tokens")}
    return RunFile(
        config=RunConfig.from_dict(values, where=where),
        cases=row["cases"],
        limit=row["limit"],
        findings=row.get("findings") or {},
        prompt_digests=row["prompts"],
        versions=row["versions"],
        calibration=row.get("calibration"),
        cases_file=row.get("cases_file"),
        batch=batch,
        summary=row.get("summary") or {},
    )
