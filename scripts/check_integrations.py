"""Run the example of each integration with the real tool, in an environment of its own, against a stub.

    python scripts/check_integrations.py                     all tools (network, gigabytes, up to an hour)
    python scripts/check_integrations.py --only inspect --only llm
    python scripts/check_integrations.py --folder DIR        keep the environments there, and reuse them
    python scripts/check_integrations.py --into docs/research/integrations.md

Each example runs three times: with a judge that works; with one whose key expires after its first reply,
which must surface as an error that says so; and again with the journal of that run, in which that reply
still is. The stub answers like a model that is right once in four answers, and judges rightly.
"""

import argparse
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from check_wheel import build
from peers.tables import insert

from caps.testing import (
    Reply,
    ScriptedEndpoint,
    Status,
    better_quality_wins,
    count_tokens,
    running,
)

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "integrations"
ANSWERS = [(401, 0.3), (381, 0.2), (391, 0.9), (291, 0.4)]  # with what the judge thinks of them
EXPIRED = "the key of the judge has expired"
REFUSED = "rejected the key"  # what `caps serve` says then
SHOWN = re.compile(r"BEGIN CANDIDATE [AB].*?\n(.*?)\n[^\n]*END CANDIDATE", re.DOTALL)


@dataclass(frozen=True)
class Tool:
    """A tool: its packages, how its example is run, and what is expected of it.

    `version_of` is the distribution whose version is shown. `works` and `fails` are patterns of what the
    example prints with a judge that works, and with one that fails. `serve`: the example talks to a
    `caps serve` in front of the stub, which says in its own words that the key was refused: `reason`.
    """

    name: str
    packages: tuple[str, ...]
    example: str
    works: str = r"391"
    fails: str = ""
    command: tuple[str, ...] = ("{bin}/python", "{example}")
    version_of: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    serve: bool = False
    reason: str = EXPIRED
    extra: str = ""


TOOLS = (
    Tool(
        "inspect", ("inspect-ai", "openai"), "inspect_task.py",
        works=r"accuracy\s+1\.0",
        fails="AuthenticationError",
        command=(
            "{bin}/inspect", "eval", "{name}", "--model", "openai-api/stub/m", "--solver", "caps/best_of_n",
            "-S", "n=4", "--display", "plain", "--log-dir", "{folder}/logs",
        ),
        version_of="inspect-ai",
    ),
    Tool(
        "lm_eval", ("lm-eval[api]",), "lm_eval_task.py",
        works=r"best-of-4': (np.float64\()?1\.0", fails="RuntimeError: caps: ", version_of="lm-eval",
    ),
    Tool(
        "datasets", ("datasets",), "datasets_pairs.py",
        works=r"chosen: 391, correct: True.*6 pairs with prompt, chosen, rejected.*contradict 0",
        fails="AccessError: ",
    ),
    Tool("trl", ("trl",), "trl_grpo.py", works=r"4 steps, \d+ judge calls", fails="RewardError: "),
    Tool(
        "langchain", ("langchain-openai",), "langchain_best_of_n.py", works=r"chain: .*391", serve=True,
        fails=r"\w*InternalServerError", reason=REFUSED, version_of="langchain-openai",
    ),
    Tool(
        "pydantic_ai", ("pydantic-ai-slim[openai]",), "pydantic_ai_best_of_n.py", serve=True,
        fails=r"pydantic_ai\.exceptions\.Model\w+Error", reason=REFUSED, version_of="pydantic-ai-slim",
    ),
    Tool(
        "litellm", ("litellm",), "litellm_router.py", works=r"391.* tokens", serve=True,
        fails=r"litellm\.\w*(Error|Exception)", reason=REFUSED,
    ),
    Tool(
        "minisweagent", ("mini-swe-agent",), "mini_swe_agent_patches.py", works=r"return 391",
        fails="AccessError: ", version_of="mini-swe-agent",
        environment={"MSWEA_SILENT_STARTUP": "1", "MSWEA_COST_TRACKING": "ignore_errors"},
    ),
    Tool(
        "llm", ("llm",), "llm_models.yaml", serve=True, fails=r"Error: ", reason=REFUSED,
        command=("{bin}/llm", "-m", "best-of-4", "What is 17 * 23?"),
    ),
    Tool(
        "otel", (), "otel_spans.py", works=r"caps\.judge.*caps\.case.*chosen: .*394", fails="AccessError: ",
        version_of="opentelemetry-sdk", extra="[otel]",
    ),
    Tool(
        "dspy", ("dspy",), "dspy_best_of_n.py", works="answer: 391", serve=True,
        fails=r"(dspy\.utils\.exceptions|litellm)\.\w+Error", reason=REFUSED,
    ),
)  # fmt: skip


class Stub:
    """Writes answers of which one in four is right, and judges; `judged` counts the replies of the judge."""

    def __init__(self) -> None:
        self.judged, self.fails_after = 0, None
        self._asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    def begin(self, fails_after: int | None = None) -> None:
        """Start anew: answers come in the same order again."""
        with self._lock:
            self.judged, self.fails_after = 0, fails_after
            self._asked.clear()

    def __call__(self, body: dict, number: int) -> Reply | Status:
        """Answer a request."""
        prompt = "\n".join(_text(one.get("content")) for one in body["messages"])
        with self._lock:
            if "BEGIN CANDIDATE" not in prompt:
                reply = _written(prompt, self._asked[prompt])
                self._asked[prompt] += 1
            elif self.fails_after is not None and self.judged >= self.fails_after:
                return Status(401, {"error": {"message": EXPIRED, "type": "invalid_request_error"}})
            else:
                self.judged += 1
                reply = _judged(prompt)
        sizes = count_tokens(prompt), count_tokens(str(reply))
        usage = dict(
            zip(("prompt_tokens", "completion_tokens", "total_tokens"), (*sizes, sum(sizes)), strict=True)
        )
        return Reply(reply, usage=usage, more={"id": f"chatcmpl-{number}", "created": 1_700_000_000})


def _text(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(one.get("text", "")) for one in content if isinstance(one, dict))
    return str(content)


def _written(prompt: str, number: int) -> str:
    answer, quality = ANSWERS[number % len(ANSWERS)]
    if "[[ ## " in prompt:  # DSPy's form
        return f"[[ ## answer ## ]]\n{answer} (quality={quality})\n\n[[ ## completed ## ]]"
    if "COMPLETE_TASK" in prompt:  # an agent
        line = f"return {answer}  # quality={quality}"
        command = (
            f"sed -i 's/return 0/{line}/' calc.py && echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && git diff"
        )
        return f"```mswea_bash_command\n{command}\n```"
    return f"With quality={quality} it is \\boxed{{{answer}}}"


def _judged(prompt: str) -> str:
    if "quality=" in prompt:
        return str(better_quality_wins({"messages": [{"content": prompt}]}).text)
    shown = SHOWN.findall(prompt)
    first, second = (text.count("good") for text in shown[-2:])
    winner = "TIE" if first == second else "A" if first > second else "B"
    code = re.search(r"<code>(\w+)</code>", prompt)  # shows that the verdict is the judge's own
    return f"<winner>{winner}</winner>\n<confidence>HIGH</confidence>\n{code[0] if code else ''}"


@dataclass
class Checked:
    """What was found of a tool."""

    tool: Tool
    version: str = ""
    judge_calls: int = 0
    error: str = ""
    kept: int | None = 0
    again: int = 0
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    printed: str = ""


def main() -> int:
    """Check the tools; the exit code is 1 if one fails."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--only", action="append", metavar="TOOL", help="check this tool alone")
    options.add_argument("--folder", type=Path, help="keep the environments in this folder")
    options.add_argument("--into", type=Path, metavar="PAGE", help="write the table into a page")
    options.add_argument("--json", type=Path, metavar="FILE", help="write what was found")
    options.add_argument("--serve", action="store_true", help="serve the stub alone, to try things out")
    args = options.parse_args()
    stub = Stub()
    if args.serve:
        with ScriptedEndpoint(stub, models=("m",), port=8899) as server:
            print(server.url, flush=True)
            threading.Event().wait()
    unknown = set(args.only or ()) - {one.name for one in TOOLS}
    if unknown:
        options.error(f"--only {min(unknown)}: must be one of {', '.join(one.name for one in TOOLS)}")
    found = []
    with (
        tempfile.TemporaryDirectory(prefix="caps-tools-") as scratch,
        nullcontext(args.folder) if args.folder else nullcontext(Path(scratch)) as folder,
        ScriptedEndpoint(stub, models=("m",)) as server,
    ):
        folder.mkdir(parents=True, exist_ok=True)
        wheel = build(Path(scratch))
        for tool in TOOLS:
            if not args.only or tool.name in args.only:
                found.append(check(tool, wheel, folder.resolve(), Path(scratch), stub, server.url))
                print(row(found[-1]), *found[-1].problems, sep="\n", flush=True)
    page = "\n".join([HEADER, *map(row, found)])
    print(page)
    if args.into:
        insert(args.into, "integrations", page)
    if args.json:
        args.json.write_text(json.dumps([{**vars(one), "tool": one.tool.name} for one in found], indent=1))
    return 1 if any(one.problems for one in found) else 0


HEADER = (
    "| tool | version | works | judge calls | with an expired key | kept | judge calls after that |\n"
    "|---|---|---|---|---|---|---|"
)


def row(one: Checked) -> str:
    """A row of the table."""
    works = "yes" if not one.problems else "**no**"
    error = f"`{one.error}`" if one.error else ""
    kept = "no journal" if one.kept is None else f"{one.kept} repl{'y' if one.kept == 1 else 'ies'}"
    name = one.tool.version_of or one.tool.name
    return f"| {name} | {one.version} | {works} | {one.judge_calls} | {error} | {kept} | {one.again} |"


def check(  # noqa: PLR0917
    tool: Tool, wheel: Path, folder: Path, scratch: Path, stub: Stub, url: str
) -> Checked:
    """Install the tool and run its example three times."""
    found, started = Checked(tool), time.monotonic()
    home = folder / tool.name
    try:
        install(tool, wheel, home)
        found.version = run(
            home / "bin" / "python", "-c",
            f"from importlib.metadata import version; print(version({tool.version_of or tool.name!r}))",
        ).stdout.strip()  # fmt: skip
        found.problems += problems(tool, home, scratch, stub, url, found)
    except subprocess.CalledProcessError as error:
        found.problems.append(
            f"{' '.join(map(str, error.cmd[:4]))} …: {(error.stderr or error.stdout)[-1500:]}"
        )
    found.seconds = round(time.monotonic() - started, 1)
    return found


def install(tool: Tool, wheel: Path, home: Path) -> None:
    """The environment of a tool: its packages, and this tree as a wheel, which is always installed anew."""
    pip = (home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    if not (home / "complete").exists():
        run(sys.executable, "-m", "venv", home)
        run(*pip, f"caps-select{tool.extra} @ {wheel.as_uri()}", *tool.packages)
        (home / "complete").touch()
    run(*pip, "--force-reinstall", "--no-deps", wheel)


def problems(  # noqa: PLR0917
    tool: Tool, home: Path, scratch: Path, stub: Stub, url: str, found: Checked
) -> Iterator[str]:
    """What went wrong; notes what was counted."""
    work = scratch / f"work-{tool.name}"
    work.mkdir()
    with example(tool, home, work, url, "fine.sqlite", stub) as done:
        found.judge_calls, found.printed = stub.judged, done.stdout[-3000:]
        if done.returncode or not re.search(tool.works, done.stdout + done.stderr, re.DOTALL):
            yield f"does not print {tool.works!r}: {(done.stdout + done.stderr)[-2500:]}"
    if not tool.fails:
        return
    with example(tool, home, work, url, "failed.sqlite", stub, fails_after=1) as done:
        said = " ".join((done.stdout + done.stderr).split())
        match = re.search(tool.fails, said)
        found.error = match[0].strip(" :") if match else ""
        found.kept = None if tool.serve else replies(work / "failed.sqlite")  # a server has no journal
        if match is None or tool.reason.replace(" ", "") not in said.replace(" ", "").replace("│", ""):
            yield f"an expired key is not reported as {tool.fails!r}: {said[-2500:]}"
        if found.kept == 0:
            yield "the reply that was paid for before the failure is not in the journal"
    with example(tool, home, work, url, "failed.sqlite", stub) as done:
        found.again = stub.judged
        if done.returncode:
            yield f"fails again with the journal of the failed run: {(done.stdout + done.stderr)[-1500:]}"


@contextmanager
def example(  # noqa: PLR0917
    tool: Tool, home: Path, work: Path, url: str, journal: str, stub: Stub, fails_after: int | None = None
) -> Iterator["subprocess.CompletedProcess[str]"]:
    """Run the example once, against the stub or a `caps serve` in front of it."""
    stub.begin(fails_after)
    names = ("PATH", "LANG", "TMPDIR", "PIP_INDEX_URL", "PIP_FIND_LINKS")
    clean = {name: os.environ[name] for name in names if name in os.environ}
    variables = {
        **clean, "HOME": str(work), "PYTHONWARNINGS": "ignore", "NO_COLOR": "1", "COLUMNS": "200",
        "CAPS_MODEL": "m", "CAPS_BASE_URL": url, "CAPS_JOURNAL": str(work / journal),
        "OPENAI_BASE_URL": url, "OPENAI_API_BASE": url, "OPENAI_API_KEY": "k", "MODEL": "openai/m",
        "STUB_BASE_URL": url, "STUB_API_KEY": "k", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "",
        **tool.environment,
    }  # fmt: skip
    known = {
        "bin": home / "bin", "example": EXAMPLES / tool.example, "name": tool.example, "folder": work,
        "examples": EXAMPLES,
    }  # fmt: skip
    command = [word.format(**known) for word in tool.command]
    where = EXAMPLES if "{name}" in tool.command else work
    serving = running(url, "--samples", 4) if tool.serve else nullcontext()
    with serving as server:
        if server is not None:
            variables["CAPS_SERVER"] = server.url
            if tool.name == "llm":
                set_up_llm(EXAMPLES / tool.example, work, server.url)
        yield subprocess.run(  # noqa: S603
            command, check=False, capture_output=True, text=True, cwd=where, env=variables, timeout=900
        )


def set_up_llm(example: Path, home: Path, url: str) -> None:
    """Tell `llm` of the model of `caps serve`, as the example says."""
    folder = home / ".config" / "io.datasette.llm"
    folder.mkdir(parents=True, exist_ok=True)
    models = example.read_text().replace("http://localhost:8080/v1", url).replace("qwen3-14b", "m")
    (folder / "extra-openai-models.yaml").write_text(models)


def replies(journal: Path) -> int:
    """How many replies a journal holds."""
    if not journal.exists():
        return 0
    with sqlite3.connect(journal) as database:
        return int(database.execute("select count(*) from replies").fetchone()[0])


def run(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run a command that must not fail, outside the tree."""
    return subprocess.run(  # noqa: S603
        [str(word) for word in words], check=True, capture_output=True, text=True, cwd=tempfile.gettempdir()
    )


if __name__ == "__main__":
    raise SystemExit(main())
