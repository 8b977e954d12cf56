"""The steps of docs/howto/ray.md on a fresh home: two nodes, a worker killed, the head killed, the same results."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

import pytest

from caps.testing import write_cases
from support.ledger import Ledger
from support.leftovers import processes_with
from support.shell import caps, json_lines, start
from support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.linux, pytest.mark.xdist_group("ray")]
RAY = Path(sys.executable).parent / "ray"
CASES, CONNECTIONS = 12, 4


class Home:
    """A fresh home with the token of its clusters, each of two nodes of this machine."""

    def __init__(self):
        self.folder = Path(mkdtemp(prefix="caps-ray-"))  # the paths of Ray's sockets must be short
        self.variables = {"HOME": str(self.folder), "RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
        self.variables["CAPS_API_KEY"] = "key"
        self._ray("get-auth-token", "--generate")

    @contextmanager
    def cluster(self):
        """Two nodes; yields the address of the first."""
        with socket.create_server(("", 0)) as free:
            port = free.getsockname()[1]
        share = ["--num-cpus", "1", "--object-store-memory", str(100 << 20), "--include-dashboard", "false"]
        folder = self.folder / f"{port}"
        said = self._ray("start", "--head", "--port", str(port), "--temp-dir", str(folder), *share)
        address = said.partition("--address='")[2].partition("'")[0]
        try:
            self._ray("start", "--address", address, *share[:4])
            yield address
        finally:
            for pid in processes_with(str(folder)):
                with suppress(OSError):
                    os.kill(int(pid), signal.SIGKILL)

    def kill_worker(self):
        """Kill one of the processes that play cases."""
        raylets = {int(pid) for pid in processes_with(str(self.folder))}
        workers = [int(pid) for pid in processes_with("ray::Worker") if parent_of(pid) in raylets]
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)

    def kill_head(self):
        """Kill the server of the cluster's head."""
        (server,) = set(processes_with("gcs_server")) & set(processes_with(str(self.folder)))
        os.kill(int(server), signal.SIGKILL)

    def _ray(self, *words):
        done = subprocess.run(
            [RAY, *words],
            check=False,
            env={**os.environ, **self.variables},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


def parent_of(pid):
    return int((Path("/proc") / pid / "stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture
def home():
    home = Home()
    yield home
    shutil.rmtree(home.folder, ignore_errors=True)


def summary(folder):
    return json.loads((folder / "run.json").read_text())["summary"]


def test_two_nodes_choose_and_count_as_one_process_whatever_is_killed(home, tmp_path):
    file = write_cases(tmp_path / "cases.jsonl", CASES)

    def words(server, name, *more):
        return (
            "select", file, "--model", "stub", "--base-url", server.url, "--journal", tmp_path / f"{name}.sqlite",
            "--max-connections", CONNECTIONS, "--strategy", "caps", "--quiet", "--out", tmp_path / name, *more,
        )  # fmt: skip

    with Ledger() as server:
        server.may_answer = 10**9
        alone = caps(*words(server, "alone"), **home.variables)
        assert alone.returncode == 0, alone.stderr
    with home.cluster() as address, Ledger() as server:
        ray = ("--engine", "ray", "--set", f"ray_address={address}", "--set", "ray_workers=2")
        server.may_answer = 60
        process = start(*words(server, "worker", *ray), **home.variables)
        # What a worker has sent and the server has not yet seen would be answered for nobody.
        wait_until(lambda: server.holds(tmp_path / "worker.sqlite") and server.busy == CONNECTIONS)
        home.kill_worker()
        wait_until(lambda: server.busy <= CONNECTIONS // 2)
        server.may_answer = 10**9
        printed, said = process.communicate()
        assert process.returncode == 0, said
        assert [json.loads(line) for line in printed.splitlines()] == json_lines(alone)
        total = summary(tmp_path / "worker")
        assert total["tokens"]["billed"] + total["trial"]["billed"] == server.tokens["prompt"]
        assert total["tokens"]["output"] + total["trial"]["output"] == server.tokens["output"]
    with home.cluster() as address, Ledger() as server:
        ray = ("--engine", "ray", "--set", f"ray_address={address}", "--set", "ray_workers=2")
        server.may_answer = 60
        process = start(*words(server, "head", *ray), **home.variables)
        wait_until(lambda: server.holds(tmp_path / "head.sqlite"))
        home.kill_head()
        _, said = process.communicate()
        assert process.returncode == 2
        assert "is gone: start the cluster again, then run the same command" in said
        assert "Traceback" not in said
        wait_until(lambda: server.busy == 0)
        answered = len(server.answered)
    with home.cluster() as address, Ledger() as server:
        server.may_answer = 10**9
        ray = ("--engine", "ray", "--set", f"ray_address={address}", "--set", "ray_workers=2")
        again = caps(*words(server, "head", *ray), **home.variables)
        assert again.returncode == 0, again.stderr
        total = summary(tmp_path / "head")
        assert total["attempts"] - len(server.answered) == answered, "what was answered is not asked again"
    for line, first in zip(json_lines(again), json_lines(alone), strict=True):
        assert (line["id"], line["order"], line["calls"]) == (first["id"], first["order"], first["calls"])
