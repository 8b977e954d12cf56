"""Build deploy/Containerfile with podman and run it: not as root, on a read-only root file system.

Where the base image cannot be pulled, one is made of Debian's packages (debootstrap, as root), and Python's
packages are fetched on this side. On Debian and Ubuntu: apt-get install podman runc debootstrap.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from caps.testing import ScriptedEndpoint, asked, upstream

ROOT = Path(__file__).parents[1]
BASE, DEBIAN, IMAGE = "python:3.12-slim", "localhost/caps-base:debian", "localhost/caps-check"
SUITE = "bookworm"
# Limits that a machine without the right to raise its own can set too.
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
STRICT = (
    "--read-only",
    "--read-only-tmpfs=false",
    "--cap-drop",
    "all",
    "--security-opt",
    "no-new-privileges",
)
ENGINES = ((), ("--cgroup-manager", "cgroupfs"), ("--runtime", "runc", "--cgroup-manager", "cgroupfs"))
PATIENCE = 120  # seconds
ABOUT_ITSELF = """
import os, sys
def refused(path):
    try: open(path, "w")
    except OSError as error: return error.errno == 30
print(os.getuid(), refused("/x"), refused("/tmp/x"), refused(sys.prefix + "/x"), os.path.exists("/src"))
"""


def main() -> int:
    """Build the image, run it in front of a stub, and check what it promises."""
    if shutil.which("podman") is None:
        print("no podman on this machine: nothing was tried")
        return 0
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder))
    engine = next((one for one in ENGINES if starts(one)), None)
    if engine is None:
        print("the image was built, and podman cannot run containers on this machine")
        return 1
    facts = podman(*engine, *run_words(), "--entrypoint", "python3", IMAGE, "-c", ABOUT_ITSELF)
    expect(facts.split() == ["65532", "True", "True", "True", "False"], f"user, read-only, sources: {facts}")
    print("built; user 65532; nothing can be written, /tmp included; no sources in the image")
    serve(engine)
    podman("rmi", "--force", IMAGE)
    return 0


def podman(*words: str, check: bool = True) -> str:
    """Run podman; what it prints."""
    done = subprocess.run(["podman", *words], capture_output=True, text=True, check=False)  # noqa: S603, S607
    if check and done.returncode:
        raise SystemExit(
            f"podman {' '.join(words[:6])} … failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.stdout.strip() if done.returncode == 0 else ""


def expect(truth: object, words: str) -> None:
    """End with these words unless it is so."""
    if not truth:
        raise SystemExit(f"not as expected: {words}")


def run_words() -> tuple[str, ...]:
    """The words that start a container under the strictest conditions."""
    return ("run", "--rm", "--network", "host", *STRICT, *LIMITS)


def starts(engine: tuple[str, ...]) -> bool:
    """Whether containers start this way on this machine."""
    return (
        podman(*engine, *run_words(), "--entrypoint", "python3", IMAGE, "-c", "print('yes')", check=False)
        == "yes"
    )


def build(folder: Path) -> None:
    """Build the image from the base image, or from one of Debian's packages."""
    words: tuple[str, ...] = ()
    if not podman("pull", "--quiet", BASE, check=False):
        if not podman("images", "--quiet", DEBIAN):
            make_base(folder / "root")
        fetch_packages(folder / "wheels")
        words = ("--build-arg", f"BASE={DEBIAN}", "--build-arg", "PIP_NO_INDEX=1")
        words += ("--build-arg", "PIP_FIND_LINKS=/wheels", "--volume", f"{folder / 'wheels'}:/wheels:ro")
    podman(
        "build",
        "--isolation",
        "chroot",
        "--format",
        "docker",
        *words,
        "-f",
        "deploy/Containerfile",
        "-t",
        IMAGE,
        ".",
    )


def make_base(root: Path) -> None:
    """A base image of Debian's packages."""
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        raise SystemExit(f"{BASE} cannot be pulled; building a base image needs debootstrap and root")
    made = [
        "debootstrap",
        "--variant=minbase",
        "--include=python3,python3-venv,ca-certificates",
        SUITE,
        str(root),
    ]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    packed = subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE)  # noqa: S603, S607
    subprocess.run(["podman", "import", "-", DEBIAN], stdin=packed.stdout, check=True, capture_output=True)  # noqa: S603, S607
    expect(packed.wait() == 0, "the base is packed")


def fetch_packages(into: Path) -> None:
    """The packages that the build needs, for the Python of Debian."""
    project = ROOT / "pyproject.toml"
    table = tomllib.loads(project.read_text())
    needed = [*table["build-system"]["requires"], *table["project"]["dependencies"]]
    needed += table["project"]["optional-dependencies"]["server"]
    command = [sys.executable, "-m", "pip", "--quiet", "download", "--python-version", "3.11"]
    subprocess.run([*command, "--only-binary", ":all:", "--dest", str(into), *needed], check=True)  # noqa: S603


def serve(engine: tuple[str, ...]) -> None:
    """Run the server of the image in front of a stub: probes, an answer, an outage, and its end."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url, key = f"http://127.0.0.1:{port}", "sk-container"
    settings = ("--env", f"CAPS_SERVER_API_KEY={key}", "--name", "caps-check", "--replace", "--detach")
    with ScriptedEndpoint(upstream, models=("m",)) as stub, ExitStack() as stack:
        podman(*engine, *run_words(), *settings, IMAGE, "--port", str(port), "--base-url", stub.url)
        stack.callback(podman, *engine, "rm", "--force", "caps-check", check=False)
        wait_for(f"{url}/live")
        expect(status(f"{url}/ready") == 200, "ready while the model server answers")
        expect(status(f"{url}/v1/models") == 401, "a key is needed")
        code, answer = post(f"{url}/v1/chat/completions", asked("vary", caps={"n": 4}), key)
        expect(code == 200 and answer["caps"]["samples"] == 4, f"an answer: {code} {answer}")
        image = json.loads(podman("image", "inspect", IMAGE))[0]
        probe = (image.get("Healthcheck") or image["Config"]["Healthcheck"])["Test"][1:]
        podman(*engine, "exec", "caps-check", *(word.replace("8400", str(port)) for word in probe))
        stub.die()
        wait_for(f"{url}/ready", 503)
        expect(status(f"{url}/live") == 200, "live during an outage of the model server")
        started = time.monotonic()
        podman(*engine, "stop", "--time", "90", "caps-check")
        expect(time.monotonic() - started < 60, "SIGTERM ends it")
    print("serves: live, ready, an answer of 4 samples, not ready but live in an outage, ends on SIGTERM")


def status(url: str) -> int:
    """The status of a page; 0 while nothing answers."""
    try:
        with urlopen(url, timeout=10) as reply:  # noqa: S310
            return int(reply.status)
    except HTTPError as error:
        return error.code
    except OSError:
        return 0


def wait_for(url: str, wanted: int = 200) -> None:
    """Wait until a page has a status."""
    end = time.monotonic() + PATIENCE
    while status(url) != wanted:
        expect(time.monotonic() < end, f"{url} has status {wanted}")
        time.sleep(0.2)


def post(url: str, body: object, key: str) -> tuple[int, Any]:
    """Send JSON with a key."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    with urlopen(Request(url, json.dumps(body).encode(), headers), timeout=PATIENCE) as reply:  # noqa: S310
        return int(reply.status), json.load(reply)


if __name__ == "__main__":
    sys.exit(main())
