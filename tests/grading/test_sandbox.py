"""Programs that try to get out, or to take more than they were given; the host is looked at afterwards."""

import asyncio
import os
import socket
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from caps.core.errors import SandboxError, SettingError, UserError
from caps.sandbox.base import PYTHON, Job, Limits
from caps.sandbox.launchers import Bubblewrap, _common_arguments, build_filter, find_sandbox
from caps.sandbox.runner import Launch, Sandbox
from support.leftovers import processes_with
from support.sandboxing import UNHURRIED, needs_bubblewrap, run
from support.waiting import PATIENCE, wait_until

pytestmark = needs_bubblewrap
SHORT = Limits(seconds=0.5)
READ = "print(repr(open({path!r}).read()))"


def test_an_honest_program_gets_its_input_and_gives_its_output():
    ran = run("import sys; print(sys.stdin.read().upper()); print('aside', file=sys.stderr)", stdin=b"hello")
    assert (ran.status, ran.exit_code, ran.stdout, ran.stderr) == ("ok", 0, b"HELLO\n", b"aside\n")


async def test_any_command_of_the_system_can_be_a_job():
    sandbox = await find_sandbox()
    assert (await sandbox.run(Job(("sort", "/job/words"), {"words": b"b\na\n"}))).stdout == b"a\nb\n"


@pytest.mark.parametrize(
    "path",
    [
        "/root/.bashrc",
        "/etc/shadow",
        "/etc/passwd",
        "/proc/1/mem",
        "/proc/1/root/etc/shadow",
        "/home",
    ],
)
def test_what_is_the_hosts_cannot_be_read(path):
    ran = run(READ.format(path=path))
    assert ran.status == "crashed"
    assert ran.stdout == b""
    assert b"Error" in ran.stderr


def test_a_link_to_the_hosts_files_leads_nowhere():
    ran = run("import os; os.symlink('/etc/shadow', '/tmp/link'); " + READ.format(path="/tmp/link"))
    assert b"FileNotFoundError" in ran.stderr


def test_the_environment_holds_no_secrets(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    ran = run(
        "import os, glob\n"
        "print(dict(os.environ))\n"
        "for path in glob.glob('/proc/*/environ'):\n"
        "    try: print(open(path).read())\n"
        "    except OSError: pass"
    )
    assert b"PATH" in ran.stdout
    assert b"secret" not in ran.stdout


@pytest.mark.parametrize("folder", ["/", "/usr", "/job", "/dev", "/etc", "/proc/sys/kernel", "/root"])
def test_nothing_can_be_written_but_in_tmp(folder):
    ran = run(f"open('/tmp/mine', 'w').write('x'); print('here'); open('{folder}/caps-was-here', 'w')")
    assert (ran.status, ran.stdout) == ("crashed", b"here\n")
    assert not Path(folder, "caps-was-here").exists()
    assert not Path("/tmp/mine").exists()


def test_the_network_is_not_there():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        ran = run(f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 1)")
        with pytest.raises(TimeoutError):
            server.accept()
    assert ran.status == "crashed"


def test_an_abstract_socket_of_the_host_cannot_be_reached():
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0caps-{os.getpid()}")
        server.listen()
        ran = run(f"import socket; socket.socket(socket.AF_UNIX).connect('\\0caps-{os.getpid()}')")
    assert b"PermissionError" in ran.stderr


def test_a_fork_bomb_stays_within_its_processes():
    source = (
        "import os, time\nborn = 0\n"
        "try:\n    while True:\n"
        "        if not os.fork(): time.sleep(600)\n"
        "        born += 1\n"
        "except OSError: print(born)\n"
    )
    ran = run(source, limits=Limits(processes=5))
    assert int(ran.stdout) <= 5
    endless = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    before = time.perf_counter()
    assert run(endless, limits=SHORT).status == "timeout"
    assert time.perf_counter() - before < PATIENCE
    assert os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)[1] == 0  # we can still start processes


def test_memory_ends_where_it_should():
    ran = run("x = [bytearray(1 << 20) for _ in range(1000)]", limits=Limits(memory=200 << 20))
    assert ran.status == "memory"


@pytest.mark.parametrize(
    "source",
    ["while True: print('x' * 1000)", "import os\nwhile True: os.write(1, bytes(1 << 16))"],
)
def test_endless_output_is_ended_and_not_kept(source):
    ran = run(source, limits=Limits(seconds=60, output=100_000))
    assert ran.status == "output"
    assert len(ran.stdout) < 101_000


def test_errors_without_end_are_cut_and_time_ends_them():
    ran = run(
        "import os\nwhile True: os.write(2, bytes(1 << 16))", limits=Limits(seconds=0.5, output=100_000)
    )
    assert ran.status == "timeout"
    assert len(ran.stderr) < 101_000


@pytest.mark.parametrize(
    "source",
    [
        "import time; time.sleep(600)",
        "while True: pass",
        "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nwhile True: signal.pause()",
        "import os, time\nos.close(0), os.close(1), os.close(2)\ntime.sleep(600)",
    ],
)
def test_time_ends_everything(source):
    before = time.perf_counter()
    assert run(source, limits=SHORT).status == "timeout"
    assert time.perf_counter() - before < PATIENCE


def test_what_a_program_leaves_behind_ends_with_it():
    mark = f"caps-left-behind-{os.getpid()}"
    source = f"import os, sys\nif not os.fork():\n    os.setsid()\n    os.execv('/bin/sh', ['sh', '-c', 'sleep 61; : {mark}'])"
    assert run(source, limits=SHORT).status in ("ok", "timeout")
    wait_until(lambda: not processes_with(mark))


async def test_cancelling_ends_the_program_however_early():
    mark = f"caps-cancelled-{os.getpid()}"

    sandbox = await find_sandbox()
    for pause in range(40):
        task = asyncio.create_task(sandbox.run(Job(("sh", "-c", f"sleep 62; : {mark}"))))
        await asyncio.sleep(pause / 2000)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    wait_until(lambda: not processes_with(mark))


@pytest.mark.parametrize("target", ["os.getppid()", "1", "-1"])
def test_a_program_kills_at_most_itself(target):
    ran = run(f"import os; os.kill({target}, 9); print('survived')")
    assert ran.status in ("ok", "crashed")
    assert os.getpid()


def test_a_huge_file_is_refused():
    ran = run(
        "f = open('/tmp/x', 'wb')\nwhile True: f.write(bytes(1 << 20))", limits=Limits(file_size=4 << 20)
    )
    assert b"File too large" in ran.stderr
    many = "import itertools\nfor n in itertools.count():\n    with open(f'/tmp/{n}', 'wb') as f: f.write(bytes(1 << 20))"
    assert b"No space left" in run(many, limits=Limits(scratch=8 << 20)).stderr


def test_deep_recursion_is_a_crash_of_its_own():
    source = "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return sorted([x], key=f)\nf(0)"
    assert run(source, limits=Limits(memory=200 << 20)).status in ("crashed", "memory")


def test_namespaces_and_shared_memory_are_closed_ways_around_the_limits():
    source = (
        "import ctypes\nc = ctypes.CDLL(None, use_errno=True)\n"
        "for name, *given in (('unshare', 0x10000000), ('shmget', 0, 1 << 30, 0o1600), ('ptrace', 0, 0, 0, 0)):\n"
        "    print(name, getattr(c, name)(*given), ctypes.get_errno())\n"
        "import threading; t = threading.Thread(target=print, args=('threads work',)); t.start(); t.join()"
    )
    assert run(source).stdout == b"unshare -1 1\nshmget -1 1\nptrace -1 1\nthreads work\n"


def test_a_program_that_talks_like_the_launcher_is_not_taken_for_it():
    assert run("import sys; sys.stderr.write('bwrap: no'); sys.exit(1)").status == "crashed"


class Broken(Sandbox):
    """A bubblewrap that understands nothing."""

    name = "broken"
    faults = (b"bwrap: ",)

    @contextmanager
    def launch(self, job):
        yield Launch(("bwrap", "--no-such-option"), {"PATH": os.environ["PATH"]})


def test_a_launcher_that_fails_is_not_the_programs_fault():
    with pytest.raises(SandboxError, match="broken cannot start: bwrap: Unknown option --no-such-option"):
        asyncio.run(Broken(cores=1).run(PYTHON.job("print(1)")))


async def test_no_more_jobs_run_at_once_than_there_are_cores():
    sandbox = await find_sandbox(cores=1)
    jobs = [sandbox.run(PYTHON.job("import time; time.sleep(0.2)")) for _ in range(3)]
    before = time.perf_counter()
    await asyncio.gather(*jobs)
    assert (time.perf_counter() - before) > 0.6  # a busy machine makes it longer


def test_without_bubblewrap_the_way_out_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"apt-get install bubblewrap.*--sandbox unsafe-local"):
        asyncio.run(find_sandbox())


def test_an_unknown_sandbox_is_refused():
    with pytest.raises(SettingError, match="'docker'.*bwrap"):
        asyncio.run(find_sandbox("docker"))


def test_the_weaker_runner_must_be_named_and_keeps_to_its_limits():
    ran = run("import os; print(6 * 7, sorted(os.environ))", sandbox="unsafe-local")
    assert ran.stdout.startswith(b"42 ['HOME', 'LANG', 'PATH'")
    assert run("while True: pass", limits=SHORT, sandbox="unsafe-local").status == "timeout"
    assert run("x = bytearray(2 << 30)", sandbox="unsafe-local").status == "memory"
    endless = run("while True: print('x' * 1000)", limits=Limits(output=9999), sandbox="unsafe-local")
    assert endless.status == "output"


def test_the_filter_is_whole_steps_and_lets_all_pass_where_numbers_are_unknown():
    assert len(build_filter("x86_64")) % 8 == len(build_filter("aarch64")) % 8 == 0
    assert len(build_filter("riscv64")) == 8


def test_an_interpreter_below_the_temporary_folder_is_visible(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as prefix:
        Path(prefix).chmod(0o755)
        (Path(prefix) / "library").write_text("of this interpreter")
        monkeypatch.setattr(sys, "base_prefix", prefix)
        _common_arguments.cache_clear()
        try:
            job = Job(("cat", f"{prefix}/library"), {}, b"", UNHURRIED)
            done = asyncio.run(Bubblewrap(cores=1).run(job))
        finally:
            _common_arguments.cache_clear()
    assert done.stdout == b"of this interpreter", done
