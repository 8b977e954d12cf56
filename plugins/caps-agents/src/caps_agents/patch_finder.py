"""Patches tried out: whether each applies to its repository and parses, and which tests it fixes or breaks.

The repository is copied once; every candidate gets its own copy of that in the memory of a sandbox without
network, where git applies the patch and the test command of the case runs. Tests count by what they did
before any patch: those that passed must still pass, and those that at least one candidate fixes should be
fixed. Files that look like tests are restored before the tests run, since a patch could change them to pass.
Nothing that is found here is a label: a patch can still recognise that it is tested.
"""

import asyncio
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

from caps import BY_CLOCK, Case, Found, InputError, UserError
from caps.sandbox import PYTHON, Job, JobResult, Limits, Sandbox, escaped, find_sandbox
from caps_agents.inside import BASE
from caps_agents.patches import CONTEXT_CHARACTERS, Patch, read_patch
from caps_agents.repositories import DIGEST, commit_of, copy_repository, locate

TEST_SECONDS = 60.0  # processor time of each process of a test command
CLOCK = 4  # times that, after which the clock ends the command
MOST_SECONDS = 1800.0
APPLY_SECONDS = 60.0
MAX_TESTS = 20_000
MAX_NAME = 200
NAMED = 3  # tests named in a note
COMMAND = "the test command"
NEEDS_FOLDER = (
    "cases name repositories, but CAPS_REPOSITORIES=DIR is not set: test commands would run on copies of "
    "those in this folder, in the sandbox"
)
# How test runners print results: unittest and cargo, pytest (-v and -rA), go, TAP.
_RESULTS = (
    re.compile(
        r"^(?:test )?(?P<name>\S.*?) \.\.\. (?:.* )?(?P<result>ok|FAIL|ERROR|FAILED|skipped|ignored)\b"
    ),
    re.compile(
        r"^(?P<name>\S+::.*?) (?P<result>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b(?: +\[ *\d+%\])?$"
    ),
    re.compile(r"^(?P<result>PASSED|FAILED|ERROR) (?P<name>\S+::[^\n]*?)(?: - .*)?$"),
    re.compile(r"^\s*--- (?P<result>PASS|FAIL|SKIP): (?P<name>\S+)"),
    re.compile(r"^(?P<result>ok|not ok) \d+(?: -)? (?P<name>[^#\n]+?)\s*(?:#.*)?$"),
)
_PASSED = frozenset({"ok", "PASSED", "PASS", "XFAIL", "XPASS"})
_LONGEST_LINE = 1_000


@dataclass(frozen=True, slots=True)
class Repository:
    """A copy of a repository to mount, with the test command of a case."""

    folder: str
    size: int
    command: str
    seconds: float
    environment: str | None


@dataclass(frozen=True, slots=True)
class TestRun:
    """Which tests passed and failed, whether the command ended in time, and how long it took."""

    __test__ = False  # pytest: not a test class

    passed: frozenset[str]
    failed: frozenset[str]
    seconds: float
    in_time: bool = True


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of one patch: why it does not apply or parse, its result, and its tests."""

    problem: str
    unparsed: str = ""
    digest: str | None = None
    context: str = ""
    changes_tests: bool = False
    tests: TestRun | None = None


class PatchFinder:
    """Applies and tests the patches of a case; without a test command it only applies them.

    A machine without bubblewrap or git, or a run without `repositories`, raises a `UserError`.
    """

    def __init__(self, sandbox: str = "auto", repositories: str | None = None) -> None:
        self._name, self._root = sandbox, repositories
        self._sandbox: Sandbox | None = None
        self._copies: dict[tuple[str, ...], asyncio.Task[tuple[str, int]]] = {}
        self._before: dict[tuple[object, ...], asyncio.Task[TestRun]] = {}
        self._folder: TemporaryDirectory[str] | None = None
        self._lock = asyncio.Lock()

    @property
    def version(self) -> str:
        """The Python version, which decides what parses."""
        return f"patches-1 python{sys.version_info.major}.{sys.version_info.minor}"

    async def find(self, case: Case, until: float | None = None) -> Sequence[Found]:
        """Try out every distinct patch of a case; `TimeoutError` if that takes too long."""
        if not case.extra.get("repository"):
            return ()
        if self._root is None:
            raise UserError(NEEDS_FOLDER)
        async with asyncio.timeout_at(until):
            sandbox = await self._get_sandbox()
            repository = await self._copy(self._root, case)
            before = await self._before_any(sandbox, case, repository) if repository.command else None
            patches = [read_patch(candidate) for candidate in case.candidates]
            distinct = list(dict.fromkeys(patches))
            trials = await asyncio.gather(*(_try_out(sandbox, repository, patch) for patch in distinct))
        trial_of = dict(zip(distinct, trials, strict=True))
        expected = _expected(before, trials)
        return [_finding(trial_of[patch], before, expected) for patch in patches]

    async def close(self) -> None:
        """Remove the copies."""
        for task in (*self._copies.values(), *self._before.values()):
            task.cancel()
        if self._folder is not None:
            await asyncio.to_thread(self._folder.cleanup)

    async def _get_sandbox(self) -> Sandbox:
        async with self._lock:
            if self._sandbox is None:
                sandbox = await find_sandbox(self._name)
                if sandbox.name != "bwrap":
                    raise UserError("patches are tried out with bubblewrap only: --sandbox bwrap")
                self._sandbox = sandbox
                self._folder = TemporaryDirectory(prefix="caps-repositories-", ignore_cleanup_errors=True)
                Path(self._folder.name).chmod(0o755)
            return self._sandbox

    async def _copy(self, root: str, case: Case) -> Repository:
        """The copy of a repository, made once for all its cases."""
        command, seconds = _test_command(case)
        environment = case.extra.get("environment")
        mounted = None if environment is None else str(locate(root, environment, "environment"))
        key = (str(case.extra["repository"]), commit_of(case))
        task = self._copies.get(key)
        if task is None:
            assert self._folder is not None  # noqa: S101
            target = Path(self._folder.name, str(len(self._copies)))
            work = asyncio.to_thread(_copied, root, case, target)
            task = self._copies[key] = asyncio.create_task(work)
        folder, size = await asyncio.shield(task)
        return Repository(folder, size, command, seconds, mounted)

    async def _before_any(self, sandbox: Sandbox, case: Case, repository: Repository) -> TestRun:
        """The tests of a repository before any patch, run once for all its cases."""
        key = (repository, case.extra.get(DIGEST))
        task = self._before.get(key)
        if task is None:
            task = self._before[key] = asyncio.create_task(_run_tests(sandbox, repository, Patch()))
        return await asyncio.shield(task)


def _copied(root: str, case: Case, target: Path) -> tuple[str, int]:
    return str(target), copy_repository(root, case, target)


def _test_command(case: Case) -> tuple[str, float]:
    command, seconds = case.extra.get("test_command") or "", case.extra.get("test_seconds", TEST_SECONDS)
    if not isinstance(command, str) or "\0" in command:
        raise InputError(f"test_command: must be a command line, not {command!r:.80}")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MOST_SECONDS:
        raise InputError(f"test_seconds: must be a number up to {MOST_SECONDS:g}, not {seconds!r:.80}")
    return command, float(seconds)


async def _try_out(sandbox: Sandbox, repository: Repository, patch: Patch | None) -> Trial:
    if patch is None:
        return Trial("it is not a patch")
    done = await sandbox.run(_job("examine", repository, patch, APPLY_SECONDS))
    report = _report(done)
    if report is None:
        return Trial(_failure(done))
    trial = Trial(
        problem=_text(report, "problem") or ("" if report.get("changed") else "it changes nothing"),
        unparsed=_text(report, "unparsed"),
        digest=_text(report, "digest")[:16] or None,
        context=str(report.get("context", ""))[:CONTEXT_CHARACTERS],
        changes_tests=report.get("changes_tests") is True,
    )
    if trial.problem:
        return Trial(trial.problem)
    if trial.unparsed or not repository.command:
        return trial
    tests = await _run_tests(sandbox, repository, patch)
    return Trial("", "", trial.digest, trial.context, trial.changes_tests, tests)


async def _run_tests(sandbox: Sandbox, repository: Repository, patch: Patch) -> TestRun:
    done = await sandbox.run(_job("test", repository, patch, repository.seconds))
    return read_tests(done)


def _job(mode: str, repository: Repository, patch: Patch, seconds: float) -> Job:
    """The job that applies a patch to a fresh copy, then reports on it or runs the tests."""
    scratch = 2 * repository.size + (256 << 20)
    limits = Limits(
        seconds=CLOCK * seconds, memory=4 << 30, output=16 << 20, processes=128, files=512,
        file_size=scratch, scratch=scratch, cpu=seconds,
    )  # fmt: skip
    folders = {str(BASE): repository.folder}
    path = f"{sys.base_prefix}/bin"
    if repository.environment is not None:
        folders[repository.environment] = repository.environment
        path = f"{repository.environment}/bin:{path}"
    request = {
        "mode": mode,
        "diff": patch.diff,
        "strip": patch.strip,
        "files": dict(patch.files) if patch.files or not patch.diff else None,
        "command": repository.command,
        "path": path,
    }
    job = PYTHON.job(_source(), stdin=json.dumps(request).encode(), limits=limits)
    return replace(job, folders=folders)


@cache
def _source() -> str:
    return (files("caps_agents") / "inside.py").read_text("utf-8")


def _report(done: JobResult) -> Mapping[str, object] | None:
    """The report of the sandbox; what stands in it is untrusted."""
    try:
        report = json.loads(done.stdout)
    except (ValueError, RecursionError):
        return None
    return report if done.status == "ok" and isinstance(report, dict) else None


def _failure(done: JobResult) -> str:
    last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    reason = {"timeout": "time", "output": "too much output", "memory": "too much memory"}.get(done.status)
    return escaped(f"it could not be applied ({reason or last[:MAX_NAME] or done.status})")


def _text(report: Mapping[str, object], name: str) -> str:
    value = report.get(name)
    return escaped(value[:MAX_NAME]) if isinstance(value, str) else ""


def read_tests(done: JobResult) -> TestRun:
    """The result of each test by the lines a runner prints; without such lines, by the exit code.

    A test that is reported twice passed only if it passed both times. A command that did not end in time, or
    ended abnormally, has passed no test that it did not report.
    """
    passed, failed = set[str](), set[str]()
    for line in done.stdout.decode(errors="replace").splitlines():
        if len(passed) + len(failed) >= MAX_TESTS:
            break
        result = None if len(line) > _LONGEST_LINE else _result(line)
        if result is not None:
            (passed if result[1] in _PASSED else failed).add(escaped(result[0][:MAX_NAME]))
    if not passed and not failed:
        (passed if done.status == "ok" else failed).add(COMMAND)
    return TestRun(
        frozenset(passed - failed), frozenset(failed), done.seconds, in_time=done.status != "timeout"
    )


def _result(line: str) -> tuple[str, str] | None:
    for pattern in _RESULTS:
        match = pattern.match(line)
        if match is not None:
            skipped = match["result"] in ("skipped", "ignored", "SKIPPED", "SKIP")
            return None if skipped else (match["name"], match["result"])
    return None


def _expected(before: TestRun | None, trials: Sequence[Trial]) -> frozenset[str]:
    """The tests that a good patch passes: those that passed before, and those that some patch fixes.

    Tests that a patch brings along are not among them: only those known before count.
    """
    if before is None:
        return frozenset()
    runs = [trial.tests for trial in trials if trial.tests is not None]
    return before.passed.union(*(run.passed & before.failed for run in runs))


def _finding(trial: Trial, before: TestRun | None, expected: frozenset[str]) -> Found:
    """The findings about one patch."""
    examples = len(expected)
    if trial.problem or trial.unparsed:
        note = f"does not apply: {trial.problem}" if trial.problem else f"does not parse: {trial.unparsed}"
        cluster = trial.digest if trial.unparsed else None
        passed = 0 if examples else None
        return Found(cluster, passed, examples, parses=False, note=note, context=trial.context)
    if trial.tests is None or before is None:
        return Found(trial.digest, parses=True, note="applies", context=trial.context)
    kept = len(trial.tests.passed & expected)
    in_time = trial.tests.in_time and before.in_time
    return Found(
        trial.digest,
        kept if examples and in_time else None,
        examples,
        parses=True,
        note=_note(trial, trial.tests, before),
        context=trial.context,
        seconds=round(trial.tests.seconds, 3),
    )


def _note(trial: Trial, tests: TestRun, before: TestRun) -> str:
    fixed, broken = tests.passed & before.failed, before.passed - tests.passed
    words = [f"fixes {len(fixed)} of {len(before.failed)} failing tests"]
    words.append(f"breaks {len(broken)} of {len(before.passed)} passing tests")
    if broken:
        words[-1] += f" ({', '.join(sorted(broken)[:NAMED])}{', …' if len(broken) > NAMED else ''})"
    if not tests.in_time or not before.in_time:
        words.append(BY_CLOCK)
    if trial.changes_tests:
        words.append("changes files of tests, which were restored")
    return "; ".join(words)
