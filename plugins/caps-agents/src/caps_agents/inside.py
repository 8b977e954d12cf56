"""Inside the sandbox: copy a repository into memory, apply a patch to the copy, report or run its tests.

The repository is mounted read-only at `BASE`; the copy is in the scratch memory of the job and ends with it.
The request comes as JSON on standard input. `examine` runs nothing of the repository and prints a report;
`test` restores the tests of the repository and becomes the test command.
"""

import ast
import json
import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

BASE, WORK, DIFF = Path("/base"), Path("/tmp/work"), Path("/tmp/patch.diff")  # /tmp is memory of this job
CONTEXT_LINES = 20
CONTEXT_BYTES = 400_000
DETAIL = 300
TESTS = re.compile(  # folders and files of tests, as the usual runners look for them
    r"(^|/)(tests?|specs?|__tests__|testing)(/|$)"
    r"|(^|/)(test_[^/]*|conftest\.py|[^/]*_tests?\.[^/.]+|[^/]*\.(test|spec)\.\w+)$"
)
_GIT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CEILING_DIRECTORIES": "/tmp", "LC_ALL": "C"}


def main() -> None:
    """Read the request, make the copy, apply the patch, then report or run the tests."""
    request = json.load(sys.stdin.buffer)
    subprocess.run(["cp", "-R", "-P", "--preserve=mode", BASE, WORK], check=True)
    problem = _apply(request)
    if request["mode"] == "test":
        if problem:
            sys.exit(f"the patch does not apply: {problem}")
        _restore_tests()
        _become(request["command"], request["path"])
    diff = subprocess.Popen(
        ["git", "diff", "--no-index", "--no-color", "--no-ext-diff", "--no-renames", "--full-index",
         f"-U{CONTEXT_LINES}", "base", "tmp/work"],
        cwd="/", env={**os.environ, **_GIT}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    digest, shown = sha256(), bytearray()
    assert diff.stdout is not None  # noqa: S101
    while chunk := diff.stdout.read(1 << 16):
        digest.update(chunk)
        shown += chunk[: CONTEXT_BYTES - len(shown)]
    changed = _changed()
    report = {
        "problem": problem,
        "digest": digest.hexdigest(),
        "context": _named(shown.decode(errors="replace")),
        "changed": len(changed),
        "unparsed": "" if problem else _unparsed(changed),
        "changes_tests": any(TESTS.search(path) for path in changed),
    }
    sys.stdout.write(json.dumps(report))


def _apply(request: "dict[str, object]") -> str:
    """Apply the patch to the copy; the reason if it does not apply."""
    files = request.get("files")
    if isinstance(files, dict):
        return next((why for path, text in files.items() if (why := _write(path, text))), "")
    DIFF.write_bytes(str(request["diff"]).encode(errors="surrogatepass"))
    command = ["git", "apply", f"-p{request['strip']}", "--whitespace=nowarn"]
    detail = ""
    # Models miscount the lines of their hunks, and leave out the lines after a change.
    for further in ([], ["--recount"], ["--recount", "--unidiff-zero"]):
        done = subprocess.run(
            [*command, *further, DIFF], cwd=WORK, env={**os.environ, **_GIT}, capture_output=True, check=False
        )
        if done.returncode == 0:
            return ""
        detail = detail or done.stderr.decode(errors="replace").strip().removeprefix("error: ")
    return detail.partition("\n")[0][:DETAIL] or "git apply failed"


def _write(path: str, text: "str | None") -> str:
    """Write or delete one file of the copy; the reason if its path leaves the copy."""
    parts = path.split("/")
    if {"", "..", ".git"} & set(parts):
        return f"{path[:DETAIL]}: the path leaves the repository"
    place = WORK / path
    if place.parent.resolve() != place.parent or place.is_symlink():
        return f"{path[:DETAIL]}: the path goes through a symbolic link"
    try:
        if text is None:
            place.unlink()
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text.encode(errors="surrogatepass"))
    except OSError as error:
        return f"{path[:DETAIL]}: {error.strerror}"
    return ""


def _changed() -> "list[str]":
    """The paths that differ between the repository and the copy."""
    return sorted(
        path for path in _paths(BASE) | _paths(WORK) if _content(BASE / path) != _content(WORK / path)
    )


def _paths(root: Path) -> "set[str]":
    paths = set()
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        links = [name for name in folders if (here / name).is_symlink()]
        paths |= {str((here / name).relative_to(root)) for name in (*files, *links)}
    return paths


def _content(place: Path) -> "bytes | str | None":
    try:
        return os.fsdecode(place.readlink()) if place.is_symlink() else place.read_bytes()
    except OSError:
        return None


def _unparsed(changed: "list[str]") -> str:
    """The first changed Python file that does not parse, and why."""
    for path in changed:
        content = _content(WORK / path)
        if path.endswith(".py") and isinstance(content, bytes):
            try:
                ast.parse(content, filename=path)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                return str(error)[:DETAIL]
    return ""


def _restore_tests() -> None:
    """Make all files that look like tests those of the repository again."""
    for path in _changed():
        if TESTS.search(path):
            original, place = BASE / path, WORK / path
            subprocess.run(["rm", "-rf", "--", place], check=True)
            if original.is_symlink() or original.is_file():
                place.parent.mkdir(parents=True, exist_ok=True)
                subprocess.run(["cp", "-P", "--preserve=mode", "--", original, place], check=True)


def _become(command: str, path: str) -> None:
    """Replace this process by the test command; its errors go where its output goes."""
    os.chdir(WORK)
    os.dup2(1, 2)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    kept |= {"PATH": f"{path}:{kept['PATH']}", "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": "/tmp"}
    os.execvpe("sh", ["sh", "-c", command], kept)  # noqa: S606


def _named(diff: str) -> str:
    """The diff with the paths of the repository in its headers."""
    lines = []
    for line in diff.split("\n"):
        if line.startswith(("diff --git ", "--- ", "+++ ")):
            line = line.replace(f"a{BASE}/", "a/").replace(f"b{WORK}/", "b/")  # noqa: PLW2901
            line = line.replace(f"a{WORK}/", "a/").replace(f"b{BASE}/", "b/")  # noqa: PLW2901
        elif line.startswith("index "):
            continue
        lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    main()
