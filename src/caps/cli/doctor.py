"""`caps doctor`: what works on this machine, and how to install the rest."""

import asyncio
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple

import typer
from platformdirs import user_cache_path, user_data_path

from caps.cli import options
from caps.cli.options import JsonFlag
from caps.cli.output import print_json, stdout
from caps.cli.progress import fetch_bar
from caps.config import RunConfig
from caps.config.judges import JudgeTable
from caps.config.sources import read_environment
from caps.core.errors import CapsError
from caps.core.secrets import shown_address, split_addresses
from caps.journal.store import default_path
from caps.models.endpoints import ServerAddress
from caps.models.rewards import Form
from caps.models.weights import cached_path, default_weights, is_intact
from caps.registry import INSTALL_AGENTS, REWARD_JUDGE
from caps.reports.console import table
from caps.sandbox.languages import TOOLCHAINS, Toolchain
from caps.sandbox.launchers import has_filter
from caps.session.judges import JudgeSpec
from caps.workers.child_python import isolated

AGENTS_PURPOSE = "patches and runs of agents (--domain patch, trajectory)"
MIN_PYTHON = (3, 11)
MIN_FREE = 200 << 20  # bytes
TIMEOUT = 20.0  # seconds
# The minimum of a sandbox: separate namespaces and a read-only file system.
SANDBOXED = ("--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
# Debian and Ubuntu name the setting differently; a container has what its host allows.
USER_NAMESPACES = (
    "sysctl kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0, on the host"
)


class Extra(NamedTuple):
    """An optional dependency group: its name, its imports, and its purpose."""

    name: str
    imports: tuple[str, ...]
    purpose: str


EXTRAS = (
    Extra("local", ("xllamacpp",), "models inside this process (--model embedded)"),
    Extra("bench", ("math_verify",), "algebra in grading"),
    Extra("parquet", ("pyarrow",), "reading Parquet files (caps import)"),
    Extra("ray", ("ray",), "many machines (--engine ray)"),
    Extra("server", ("starlette", "uvicorn", "prometheus_client"), "answering clients (caps serve)"),
    Extra("otel", ("opentelemetry.sdk",), "spans and metrics with OpenTelemetry (--otel)"),
    Extra("prices", ("genai_prices",), "listed prices of models"),
    Extra("tokenizers", ("tokenizers",), "counting tokens with a tokenizer.json (--set tokenizer=FILE)"),
)

Fetch = Annotated[bool, typer.Option("--fetch", help="Download the default model first (93 MB).")]


def doctor(
    ctx: typer.Context,
    fetch: Fetch = False,
    judge: options.Judges = None,
    config_file: options.JUDGES_FILE = None,
    as_json: JsonFlag = False,
) -> None:
    """Check what works on this machine, and how to install the rest.

    Checks Python, optional packages, the default model, servers, the journal and the sandbox, and several
    judges (--judge, or [[judge]] tables of --config). Everything that is missing is optional. The exit code
    is 1 only if something that exists does not work.
    """
    cache = user_cache_path("caps")
    if fetch:
        with fetch_bar() as report:
            default_weights(cache, report)
    journal = os.environ.get("CAPS_JOURNAL")
    places = environment_places()
    checks = examine(
        cache=cache,
        journal=Path(journal) if journal else default_path(user_data_path("caps")),
        endpoints=[place for place in places if place.kind == places[0].kind],
        model=os.environ.get("CAPS_MODEL"),
        judges=options.judge_tables(ctx, judge),
        environment=os.environ,
        reward=_reward_form(),
    )
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        rows = [(check.name, check.state, check.found, check.mend) for check in checks]
        columns = ("", "state", "what was found", "how to fix it")
        stdout().print(table("", columns, rows, numbers_from=len(columns)))
    raise typer.Exit(any(check.state == "broken" for check in checks))


def _reward_form() -> Form | None:
    """How the reward server that the environment names is asked, if it names one."""
    names = ("reward_api", "reward_template", "reward_steps", "reward_class")
    config = RunConfig(**read_environment(names), judge=REWARD_JUDGE)
    return None if config.reward_api is None else JudgeSpec(table=JudgeTable(), config=config).reward_form()


def environment_places() -> list[ServerAddress]:
    """The servers that the environment names, with their keys, in the order of preference."""
    caps_key, general = os.environ.get("CAPS_API_KEY"), os.environ.get("OPENAI_API_KEY")
    urls = (os.environ.get("CAPS_BASE_URL", ""), os.environ.get("OPENAI_BASE_URL", ""))
    keys = (caps_key or general, general if urls[0] else caps_key or general)
    named = list(zip(("CAPS_BASE_URL", "OPENAI_BASE_URL"), urls, keys, strict=True))
    distinct = named[:1] if urls[0] == urls[1] else named
    return [ServerAddress(name, url, key) for name, urls, key in distinct for url in split_addresses(urls)]


# The checks: what works, what does not, and the command that fixes it


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check: `missing` is optional and absent, `broken` is present and does not work."""

    name: str
    state: Literal["ok", "missing", "broken"]
    found: str
    mend: str = ""


def examine(
    *,
    cache: Path,
    journal: Path,
    endpoints: Sequence[ServerAddress] = (),
    model: str | None = None,
    reward: Form | None = None,
    judges: Sequence[JudgeTable] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> list[Check]:
    """Run all checks; endpoints are only asked for their lists of models, which costs nothing.

    A reward server, which may have no such list, scores one short answer. `judges` are checked with the keys
    that the environment holds.
    """
    served = partial(check_endpoint, model=model) if reward is None else partial(check_rewards, model, reward)
    return [
        check_python(),
        *map(check_extra, EXTRAS),
        check_agents(),
        check_weights(cache),
        *(map(served, endpoints) if endpoints else [check_endpoint(None)]),
        *(check_judge(one, environment) for one in judges if one.model is not None and one.base_url),
        check_journal(journal),
        check_sandbox(),
        *map(check_toolchain, TOOLCHAINS.values()),
    ]


def check_python() -> Check:
    """Check the Python version."""
    found = f"{sys.version.split()[0]}, {sys.executable}"
    if sys.version_info >= MIN_PYTHON:
        return Check("python", "ok", found)
    return Check("python", "broken", found, "install Python 3.11 or newer")


def check_extra(extra: Extra) -> Check:
    """Check that an extra is installed and can be imported, in a separate process."""
    name, fix = f"extra {extra.name}", f"pip install 'caps-select[{extra.name}]'"
    absent = [module for module in extra.imports if not _is_installed(module)]
    if absent:
        return Check(name, "missing", f"no {absent[0]}: {extra.purpose}", fix)
    problem = _run(*isolated(f"import {', '.join(extra.imports)}", native=True))
    if problem:
        return Check(name, "broken", problem, f"pip install --force-reinstall 'caps-select[{extra.name}]'")
    return Check(name, "ok", extra.purpose)


def check_agents() -> Check:
    """Check the package for patches and runs of agents."""
    if _is_installed("caps_agents"):
        return Check("package caps-agents", "ok", AGENTS_PURPOSE)
    return Check("package caps-agents", "missing", f"no caps_agents: {AGENTS_PURPOSE}", INSTALL_AGENTS)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is part of
        return False


def check_weights(cache: Path) -> Check:
    """Check the default weights in the cache."""
    path, fix = cached_path(cache), "caps doctor --fetch"
    if not path.exists():
        return Check("default weights", "missing", "not fetched yet: 93 MB, for --model embedded", fix)
    if not is_intact(path):
        return Check("default weights", "broken", f"{path}: its digest is wrong", fix)
    return Check("default weights", "ok", str(path))


def check_endpoint(endpoint: ServerAddress | None, model: str | None = None) -> Check:
    """Check that an endpoint lists its models, including the chosen one."""
    if endpoint is None:
        fix = "export CAPS_BASE_URL=http://localhost:8000/v1 CAPS_MODEL=NAME"
        return Check("endpoint", "missing", "none in the environment; --model embedded needs none", fix)
    from caps.models.endpoints import discover  # noqa: PLC0415  (aiohttp takes a while to load)

    (found,) = asyncio.run(discover([endpoint], seconds=5.0))
    fixes = {
        "silent": "start the server, or export another CAPS_BASE_URL",
        "refusing": "export CAPS_API_KEY=…",
        "strange": "export CAPS_BASE_URL=…; it often ends in /v1",
    }
    if found.state in fixes:
        return Check("endpoint", "broken", f"{found.base_url}: {found.problem}", fixes[found.state])
    served = [one.name for one in found.models]
    if model and served and model not in served:
        return Check(
            "endpoint", "broken", f"{found.base_url} serves no {model!r}", f"export CAPS_MODEL={served[0]}"
        )
    return Check("endpoint", "ok", f"{found.base_url} serves {len(served)} model{'s' * (len(served) != 1)}")


def check_judge(judge: JudgeTable, environment: Mapping[str, str]) -> Check:
    """Check that the server of a judge lists its model, with the key that its table names."""
    name, variable = f"judge {judge.name}", judge.api_key_env
    if variable and not environment.get(variable):
        return Check(
            name, "broken", f"{variable}, which should hold its key, is not set", f"export {variable}=…"
        )
    for address in judge.base_url:
        found = check_endpoint(ServerAddress(name, address, environment.get(variable)), judge.model)
        if found.state != "ok":
            return Check(name, found.state, found.found, "correct its [[judge]] table, or start the server")
    return Check(name, "ok", f"{judge.model} is served")


def check_rewards(model: str | None, form: Form, endpoint: ServerAddress) -> Check:
    """Check that a reward server scores an answer."""
    from caps.models.http import HttpModel, Timeouts  # noqa: PLC0415
    from caps.models.rewards import RewardModel, check  # noqa: PLC0415

    async def score() -> str:
        server = HttpModel(endpoint.base_url, endpoint.api_key, timeouts=Timeouts(read=TIMEOUT))
        reward = RewardModel(server, form)
        try:
            return (await check(reward, model or "")).text
        finally:
            await reward.close()

    fix = "export CAPS_REWARD_API=… and CAPS_BASE_URL=… of the server; see docs/howto/reward-models.md"
    try:
        return Check(
            "reward server", "ok", f"{shown_address(endpoint.base_url)} scores: {asyncio.run(score())}"
        )
    except CapsError as error:
        return Check("reward server", "broken", str(error), fix)


def check_journal(path: Path) -> Check:
    """Check that the folder of the journal is writable and has free space."""
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    fix = "export CAPS_JOURNAL=/another/folder/journal.sqlite"
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check("journal", "broken", f"{folder}: {error.strerror}", fix)
    if free < MIN_FREE:
        return Check("journal", "broken", f"{folder}: only {free >> 20} MB free", fix)
    return Check("journal", "ok", f"{path}, {free / (1 << 30):.1f} GB free")


def check_sandbox(program: str = "bwrap") -> Check:
    """Check that bubblewrap is installed and can start a program, which many containers forbid."""
    found = shutil.which(program)
    if found is None:
        message = "no bubblewrap: programs of candidates cannot be run safely"
        return Check("sandbox", "missing", message, "apt-get install bubblewrap, or dnf install bubblewrap")
    problem = _run([found, *SANDBOXED, "true"])
    if problem:
        return Check("sandbox", "broken", problem, USER_NAMESPACES)
    unfiltered = "" if has_filter() else f"; no filter of system calls for {platform.machine()}"
    return Check("sandbox", "ok", found + unfiltered)


def check_toolchain(toolchain: Toolchain) -> Check:
    """Check for the tools that compile and run programs of a language."""
    name = f"language {toolchain.name}"
    if toolchain.missing is None:
        return Check(name, "ok", f"{' and '.join(toolchain.needs)}: programs of candidates can be run")
    message = f"no {toolchain.missing}: programs of candidates are not run"
    return Check(name, "missing", message, toolchain.install)


def _run(command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """Run a command; the reason why it failed, or an empty text."""
    try:
        done = subprocess.run(  # noqa: S603
            command, env=env, capture_output=True, encoding="utf-8", errors="replace", timeout=TIMEOUT,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{Path(command[0]).name}: {error}"
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"{Path(command[0]).name} ended with exit code {done.returncode}"
