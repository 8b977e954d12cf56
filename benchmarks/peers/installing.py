"""Other tools, each in a virtual environment of its own under the user's cache, never in this repository."""

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree

from platformdirs import user_cache_path

PATIENCE = 600  # seconds


class NotInstalledError(Exception):
    """Why a tool cannot be had here."""


def interpreter(name: str, packages: Sequence[str], bare: Sequence[str] = ()) -> Path:
    """The Python of a tool's environment, made on first use; `bare` ones come without what they require."""
    folder = user_cache_path("caps") / "benchmarks" / "peers" / name
    python, done = folder / "bin" / "python", folder / "done"
    wanted = "\n".join([*packages, *bare])
    if done.exists() and done.read_text() == wanted:
        return python
    rmtree(folder, ignore_errors=True)
    print(f"installing {', '.join([*bare, *packages])} into {folder}", file=sys.stderr, flush=True)
    _run(sys.executable, "-m", "venv", str(folder))
    pip = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    try:
        if bare:
            _run(*pip, "--no-deps", *bare)
        _run(*pip, *packages)
    except NotInstalledError:
        rmtree(folder, ignore_errors=True)
        raise
    done.write_text(wanted)
    return python


def version(python: Path, package: str) -> str:
    """Which version an environment has."""
    words = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.check_output([str(python), "-c", words], text=True).strip()  # noqa: S603


def own_path() -> str:
    """Where drivers find this project, for those that run in this very environment."""
    found = find_spec("caps")
    source = str(Path(found.origin).parents[1]) if found and found.origin else ""
    return os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))


def _run(*words: str) -> None:
    try:
        subprocess.run(words, check=True, timeout=PATIENCE, capture_output=True, text=True)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise NotInstalledError(f"pip was not done in {PATIENCE} s") from None
    except subprocess.CalledProcessError as error:
        said = [line for line in error.stderr.splitlines() if line.startswith("ERROR")]
        raise NotInstalledError(said[-1] if said else "pip failed") from None
