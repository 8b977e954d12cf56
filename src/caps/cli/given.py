"""What the options of a command say, read and checked; `options` declares them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from platformdirs import user_cache_path

from caps.assemble import ENGINES, Endpoint, find, make_strategy, with_shortlist
from caps.cli.fetching import fetch_bar
from caps.config import parse_assignments
from caps.core.errors import SettingError
from caps.core.judging import JudgeProfile
from caps.core.play import Strategy
from caps.core.settings import override
from caps.costs.prices import Price
from caps.engines.batch_files import BatchSettings
from caps.graders.sandbox import NAMES as SANDBOXES
from caps.judges.profiles import read_profile
from caps.models.fleet_addresses import join_addresses
from caps.prompts.render import VERSION, VERSIONS
from caps.reports.remade import prompt_version_of_run
from caps.reports.rundir import read_made

GRACE_SECONDS = 3.0  # what comes in that long after Ctrl-C is paid, and kept


def strategy_of(
    name: str, changes: dict[str, str], judge_profile: Path | None, hard_evidence: str
) -> Strategy:
    """The strategy that options name; with hard evidence, what fails a public example is not judged."""
    chosen = make_strategy(name, changes, known_judge(judge_profile))
    tested = parse_hard_evidence(hard_evidence) != "off" and "shortlist" not in changes
    return with_shortlist(chosen) if tested else chosen


def endpoint_of(
    model: str | None, base_url: str | Sequence[str] | None, api_key: str | None, *, quiet: bool = False
) -> Endpoint:
    """The endpoint that options name, or what is missing; weights that are not here yet are fetched."""
    address = join_addresses(base_url)
    with fetch_bar(hidden=quiet) as report:
        return find(model, address, api_key, cache=user_cache_path("caps"), report=report)


def partial_endpoint(
    model: str | None,
    base_url: Sequence[str] | None,
    api_key: str | None,
    model_e1: str | None,
    base_url_e1: Sequence[str] | None,
    api_key_e1: str | None,
    *,
    quiet: bool,
) -> Endpoint | None:
    """Another judge for partial views; a key is not carried to another address."""
    if not model_e1 and not base_url_e1:
        return None
    key = api_key_e1 or (None if base_url_e1 else api_key)
    return endpoint_of(model_e1 or model, base_url_e1 or base_url, key, quiet=quiet)


def confidence_of(word: str) -> Any:
    """Read `--confidence`."""
    if word not in ("verbal", "logprobs", "auto"):
        raise SettingError(f"--confidence {word!r}: must be one of verbal, logprobs, auto")
    return word


def prompt_version_of(word: str | None, out: Path | None) -> str:
    """Read `--prompt-version`; unless it is given, a run goes on with the prompts it began with."""
    if word is None and out is not None and (out / "run.json").is_file():
        try:
            return prompt_version_of_run(read_made(out))
        except (OSError, msgspec.MsgspecError):
            return VERSION  # a damaged folder is reported by whoever writes to it
    if word is not None and word not in VERSIONS:
        raise SettingError(f"--prompt-version {word!r}: must be one of {', '.join(VERSIONS)}")
    return word or VERSION


def price_of(read: float | None, written: float | None, reread: float | None) -> Price | None:
    """The price that options state, if any."""
    if read is None and written is None and reread is None:
        return None
    if read is None or written is None:
        raise SettingError("a price needs both --price-input and --price-output")
    return Price(read, written, reread)


def known_judge(path: Path | None) -> JudgeProfile | None:
    """Read `--judge-profile`."""
    return None if path is None else read_profile(path)


def parse_extra(words: list[str]) -> dict[str, Any]:
    """Read `name=json` words; what is not JSON is taken as a text."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise SettingError(f"--extra {word!r}: write it as name=value")
        try:
            found[name] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            found[name] = value
    return found


def parse_hard_evidence(word: str) -> Any:
    """Read `auto`, `on` or `off`."""
    if word not in ("auto", "on", "off"):
        raise SettingError(f"--hard-evidence {word!r}: must be auto, on or off")
    return word


def parse_sandbox(word: str) -> str:
    """Read the name of a sandbox."""
    if word not in SANDBOXES:
        raise SettingError(f"--sandbox {word!r}: must be one of {', '.join(SANDBOXES)}")
    return word


def parse_engine(word: str) -> str:
    """Read the name of an engine."""
    if word not in ENGINES:
        raise SettingError(f"--engine {word!r}: must be one of {', '.join(ENGINES)}")
    return word


def parse_batch(words: list[str] | None) -> BatchSettings:
    """Read `--batch lines=1000` words."""
    return override(BatchSettings(), parse_assignments(words or [], option="--batch"))


def parse_connections(word: str) -> Any:
    """Read `auto` or a number."""
    if word == "auto":
        return word
    if not word.isdecimal() or int(word) < 1:
        raise SettingError(f"--max-connections {word!r}: must be a whole number of at least 1, or auto")
    return int(word)
