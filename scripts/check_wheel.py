"""Build the wheel and the sdist, and install them into empty environments: do they work there?

The wheel is installed with each extra, and without extras on every Python from 3.11 to 3.14 that this
machine has; the sdist without extras. In every environment the command prints its version, a case is
decided by a Python function as the judge, and `caps doctor` finds the extra. Needs the network for the
first download of each package; `--only NAME` checks one extra ("" is none), `--python` the sdist and the
versions of Python alone.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = (11, 12, 13, 14)  # 3.x
SELECT = """
import caps

def longer(problem, a, b):
    return "A" if len(a) > len(b) else "B"

best = caps.best_sync("Why is the sky blue?", ["Air.", "Air scatters blue light most."], judge=longer)
assert best.text == "Air scatters blue light most.", best
"""


def main() -> int:
    """Check every environment; the exit code is 1 if one fails."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", action="append", metavar="EXTRA", help="check this extra alone")
    options.add_argument("--python", action="store_true", help="check only the versions of Python")
    args = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="caps-wheel-") as name:
        folder = Path(name)
        wheel, sdist = build(folder)
        version, extras = evidence(wheel)
        for archive in (wheel, sdist):
            print(f"{archive.name}: {archive.stat().st_size / 1e6:.1f} MB")
        print(f"extras {', '.join(extras)}", flush=True)
        failed = [problem for archive in (wheel, sdist) for problem in missing_notices(archive)]
        if not args.python:
            failed += [
                extra or "no extra"
                for extra in args.only or ["", *extras]
                if not check(wheel, version, extra, folder / f"env-{extra}")
            ]
        if not args.only:
            failed += [] if check(sdist, version, "", folder / "env-sdist") else ["sdist"]
            for minor in PYTHONS:
                python = interpreter(minor)
                if python is None:
                    print(f"Python 3.{minor} is not installed here: untested", flush=True)
                elif not check(wheel, version, "", folder / f"env-3.{minor}", python):
                    failed.append(f"Python 3.{minor}")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel and the sdist, built from this tree."""
    run(sys.executable, "-m", "venv", folder / "env-build")
    python = folder / "env-build" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "build", "hatchling")
    run(python, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def evidence(wheel: Path) -> tuple[str, list[str]]:
    """Version and extras, from the metadata in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    return metadata["Version"], metadata.get_all("Provides-Extra", [])


def missing_notices(archive: Path) -> list[str]:
    """The licences and notices that an archive lacks."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            names = wheel.namelist()
    else:
        with tarfile.open(archive) as sdist:
            names = sdist.getnames()
    return [
        f"{archive.name} lacks {wanted}"
        for wanted in ("/LICENSE", "/NOTICE", "/vendor/LICENSES.txt")
        if not any(name.endswith(wanted) for name in names)
    ]


def interpreter(minor: int) -> str | None:
    """The path of a version of Python, on the path or under pyenv."""
    under_pyenv = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3"))
    for path in (shutil.which(f"python3.{minor}"), *map(str, under_pyenv)):
        if path and f"3.{minor}." in run(path, "-V", check=False):  # pyenv has names for versions it lacks
            return path
    return None


def check(archive: Path, version: str, extra: str, folder: Path, python: str = sys.executable) -> bool:
    """Install it with an extra and use it."""
    started = time.monotonic()
    try:
        run(python, "-m", "venv", folder)
        name = f"caps-select[{extra}]" if extra else "caps-select"
        run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", f"{name} @ {archive.as_uri()}")
        problems = list(faults(folder, version, extra))
    except subprocess.CalledProcessError as error:
        problems = [
            f"{' '.join(map(str, error.cmd[:5]))} …: {(error.stderr or error.stdout).strip()[-2000:]}"
        ]
    print(
        f"{folder.name.removeprefix('env-') or 'no extra':<10} {time.monotonic() - started:5.0f} s  "
        f"{'; '.join(problems) or 'ok'}",
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
    rows = json.loads(run(command, "doctor", "--json", check=False))
    states = {row["name"]: row["state"] for row in rows}
    if states.get(f"extra {extra}", "ok") != "ok":
        yield f"caps doctor: extra {extra} is {states[f'extra {extra}']}"
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
