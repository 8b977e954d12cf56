"""Build the wheel and install it with each extra into an empty environment: does it work there?

In every environment the command prints its version, a case is decided by a Python function as the judge, and
`caps doctor` finds the extra. Needs the network for the first download of each package; `--only NAME` checks
one extra ("" is none).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parents[1]
SELECT = """
import caps

def longer(problem, a, b):
    return "A" if len(a) > len(b) else "B"

best = caps.best_sync("Why is the sky blue?", ["Air.", "Air scatters blue light most."], judge=longer)
assert best.text == "Air scatters blue light most.", best
"""


def main() -> int:
    """Check every extra; the exit code is 1 if one fails."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", action="append", metavar="EXTRA", help="check this extra alone")
    wanted = options.parse_args().only
    with tempfile.TemporaryDirectory(prefix="caps-wheel-") as folder:
        wheel = build(Path(folder))
        version, extras = evidence(wheel)
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, extras {', '.join(extras)}", flush=True)
        failed = [
            extra or "no extra"
            for extra in wanted or ["", *extras]
            if not check(wheel, version, extra, Path(folder) / f"env-{extra}")
        ]
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def build(folder: Path) -> Path:
    """The wheel, built from this tree."""
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def evidence(wheel: Path) -> tuple[str, list[str]]:
    """Version and extras, from the metadata in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    return metadata["Version"], metadata.get_all("Provides-Extra", [])


def check(wheel: Path, version: str, extra: str, folder: Path) -> bool:
    """Install it with an extra and use it."""
    started = time.monotonic()
    try:
        run(sys.executable, "-m", "venv", folder)
        requirement = (
            f"caps-select[{extra}] @ {wheel.as_uri()}" if extra else f"caps-select @ {wheel.as_uri()}"
        )
        run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", requirement)
        problems = list(faults(folder, version, extra))
    except subprocess.CalledProcessError as error:
        problems = [
            f"{' '.join(map(str, error.cmd[:5]))} …: {(error.stderr or error.stdout).strip()[-2000:]}"
        ]
    print(
        f"{extra or 'no extra':<10} {time.monotonic() - started:5.0f} s  {'; '.join(problems) or 'ok'}",
        flush=True,
    )
    return not problems


def faults(folder: Path, version: str, extra: str) -> Iterator[str]:
    """What does not work in an environment."""
    command = folder / "bin" / "caps"
    printed = run(command, "--version").strip()
    if printed != f"caps {version}":
        yield f"caps --version prints {printed!r}"
    run(folder / "bin" / "python", "-W", "error", "-c", SELECT)
    found = {one["name"]: one["state"] for one in json.loads(run(command, "doctor", "--json", check=False))}
    if found.get(f"extra {extra}", "ok") != "ok":
        yield f"caps doctor: extra {extra} is {found[f'extra {extra}']}"
    if extra == "docs":
        run(folder / "bin" / "mkdocs", "--version")


def run(*words: str | Path, check: bool = True) -> str:
    """What a command prints; it is run outside the tree, so that nothing is imported from here."""
    done = subprocess.run(  # noqa: S603
        [str(word) for word in words], check=check, capture_output=True, text=True, cwd=tempfile.gettempdir()
    )
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main())
