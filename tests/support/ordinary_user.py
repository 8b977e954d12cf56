"""Commands run as an ordinary user, where the tests run as root: most people have no root, and the sandbox then works otherwise.

Folders that only root can enter hide the interpreter and the tests from that user: in its mount namespace they are
replaced by empty ones, in which only what is needed appears.
"""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from support.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
FIRST_UID = 70_000  # of users that nobody else is
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("bwrap", "setpriv"))),
    reason="the tests run as an ordinary user already, or cannot become one",
)


def run_as_ordinary_user(*command, seconds=PATIENCE):
    """Run a command to its end as a user without any rights, with a folder of its own as `TMPDIR`."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        return _run(command, folder, seconds)


def _run(command, folder, seconds):
    user = str(FIRST_UID + os.getpid())
    words = ["bwrap", "--dev-bind", "/", "/", *_opened({ROOT, Path(sys.prefix), Path(sys.base_prefix)})]
    words += ["--chdir", str(ROOT), "setpriv", "--reuid", user, "--regid", user, "--clear-groups"]
    words += ["--inh-caps=-all", "--bounding-set=-all", *command]
    writable = dict.fromkeys(("HOME", "TMPDIR", "HYPOTHESIS_STORAGE_DIRECTORY"), folder)
    environment = {**os.environ, **writable, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )


def _opened(needed):
    """Arguments for bubblewrap that make these folders visible to everybody."""
    closed = {
        parent for path in needed for parent in path.parents if not parent.stat().st_mode & stat.S_IXOTH
    }
    arguments = []
    for parent in closed:
        if closed.isdisjoint(parent.parents):
            arguments += ["--perms", "0755", "--tmpfs", str(parent)]
    for path in needed:
        if not closed.isdisjoint(path.parents):
            for parent in reversed(path.parents[:-1]):
                arguments += ["--perms", "0755", "--dir", str(parent)]
            arguments += ["--ro-bind", str(path), str(path)]
    return arguments
