"""The weaker sandbox for machines without bubblewrap; it must be chosen by name.

It limits memory, processor time, file size, open files and wall time, kills the program's process group,
clears its environment and gives it a temporary folder. It does not stop a program from

* reading or changing whatever you can read or change, or sending it over the network;
* killing your processes, the one that runs it included;
* starting any number of processes, or moving some to another group where they outlive the time limit;
* filling the disk with many files, each within the limit.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from caps.core.errors import SandboxError
from caps.sandbox.base import Job
from caps.sandbox.runner import ENVIRONMENT, Launch, prlimit


@dataclass(frozen=True, slots=True)
class UnsafeLocal:
    """Starts jobs as ordinary processes under limits."""

    name: str = "unsafe-local"
    faults: tuple[bytes, ...] = (b"prlimit: ",)

    @contextmanager
    def launch(self, job: Job) -> Iterator[Launch]:
        """Write the files of a job to a temporary folder and return its command."""
        if job.folders:
            raise SandboxError("unsafe-local: cannot protect the folders of a job: use bwrap")
        with TemporaryDirectory(prefix="caps-", ignore_cleanup_errors=True) as folder:
            for name, content in job.files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            program = str(Path(sys.executable).resolve()) if job.argv[0] == "python" else job.argv[0]
            env = {**ENVIRONMENT, "HOME": folder, "TMPDIR": folder, "PYTHONPATH": folder}
            yield Launch((*prlimit(job.limits, processes=None), program, *job.argv[1:]), env, folder)
