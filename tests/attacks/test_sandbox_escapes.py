"""Ways around the sandbox's limits that system calls would open: memory that is not counted, sockets that no namespace holds."""

import asyncio
import os
import platform
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from caps.sandbox.base import PYTHON, Limits
from caps.sandbox.launchers import Bubblewrap, has_filter
from support.leftovers import processes_with
from support.sandboxing import UNHURRIED, case, grade, needs_bubblewrap, run
from support.waiting import wait_until

pytestmark = needs_bubblewrap
SMALL = Limits(seconds=20, memory=200 << 20)
TESTS = str(Path(__file__).parents[1])
needs_filter = pytest.mark.skipif(not has_filter(), reason="no system-call filter for this machine")
on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers and machine code of x86-64")
# Takes memory in one way or another until nothing more is to be had, and says how much it holds in MiB.
HOLD = """
import ctypes, mmap, os, socket, sys
held, kept = 0, []
def take():
{take}
try:
    while held < 2000:
        held += take()
except (OSError, MemoryError, ValueError, AttributeError) as error:
    del error
sys.stdout.write(str(int(held)))
sys.stdout.flush()
os._exit(0)
"""
MEMORY = {
    "files in memory": "    fd = os.memfd_create('x'); kept.append(fd); [os.write(fd, bytes(1 << 20)) for _ in range(8)]; return 8",
    "files in memory that are closed but mapped": "    fd = os.memfd_create('x'); os.ftruncate(fd, 8 << 20); kept.append(mmap.mmap(fd, 8 << 20)); os.close(fd); kept[-1].write(bytes(8 << 20)); return 8",
    "files in huge pages": "    fd = os.memfd_create('x', os.MFD_HUGETLB); kept.append(fd); os.ftruncate(fd, 8 << 20); os.posix_fallocate(fd, 0, 8 << 20); return 8",
    "secret memory": "    fd = ctypes.CDLL(None, use_errno=True).syscall(447, 0); kept.append(fd); os.ftruncate(fd, 8 << 20); kept.append(mmap.mmap(fd, 8 << 20)); return 8",
    "shared memory": "    kept.append(mmap.mmap(-1, 8 << 20)); kept[-1].write(bytes(8 << 20)); return 8",
    "private memory": "    kept.append(bytearray(8 << 20)); return 8",
    "shared memory of a device": "    fd = os.open('/dev/zero', os.O_RDWR); kept.append(mmap.mmap(fd, 8 << 20)); os.close(fd); kept[-1].write(bytes(8 << 20)); return 8",
    "files without a name": "    fd = os.open('/tmp', os.O_TMPFILE | os.O_RDWR); kept.append(fd); [os.write(fd, bytes(1 << 20)) for _ in range(8)]; return 8",
    "files deleted while open": "    fd = os.open('/tmp/x', os.O_CREAT | os.O_RDWR); os.unlink('/tmp/x'); kept.append(fd); [os.write(fd, bytes(1 << 20)) for _ in range(8)]; return 8",
    "files in /dev/shm": "    fd = os.open(f'/dev/shm/{len(kept)}', os.O_CREAT | os.O_RDWR); kept.append(fd); os.write(fd, bytes(8 << 20)); return 8",
    "pipes as large as allowed": "    reader, writer = os.pipe(); os.close(os.dup(reader)); import fcntl; fcntl.fcntl(writer, 1031, 1 << 20); kept.append(reader); os.set_blocking(writer, False); sent = os.write(writer, bytes(1 << 20)); os.close(writer); return sent / (1 << 20)",
    "files in the root": "    fd = os.open('/', os.O_TMPFILE | os.O_RDWR); kept.append(fd); os.write(fd, bytes(8 << 20)); return 8",
}  # fmt: skip
# What was sent and is not received stays in the kernel, also after the sender has closed its end.
FILL = """
import array
def fill(end):
    end.setblocking(False)
    try: end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, (1 << 31) - 1)
    except PermissionError: pass
    sent = 0
    for size in (1 << 16, 1 << 10, 1):
        try:
            while True: sent += end.send(bytes(size))
        except OSError: pass
    return sent / (1 << 20)
def connections(family, address):
    server = socket.socket(family)
    server.bind(address)
    server.listen(4096)
    while True:
        with socket.socket(family) as client:
            client.connect(server.getsockname())
            yield fill(client)
def datagrams(family, address):
    kept, server = [], socket.socket(family, socket.SOCK_DGRAM)
    server.bind(address)
    while True:
        kept.append(socket.socket(family, socket.SOCK_DGRAM))
        kept[-1].connect(server.getsockname())
        yield fill(kept[-1])
def pairs(kind):
    kept = []
    while True:
        kept += socket.socketpair(socket.AF_UNIX, kind)
        yield fill(kept[-1]) + fill(kept[-2])
def receivers():
    kept = []
    while True:
        receiver, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        kept.append(receiver)
        receiver.bind("\\0%d" % len(kept))
        ctypes.CDLL(None).connect(receiver.fileno(), bytes(16), 16)  # without a peer, everybody may send to it
        for _ in range(100):
            sender, rest = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            sender.connect("\\0%d" % len(kept))
            yield fill(sender)
def in_flight():
    carriers = socket.socketpair()
    while True:
        full = socket.socketpair()
        sent = fill(full[0]) + fill(full[1])
        socket.send_fds(carriers[0], [b"x"], [end.fileno() for end in full])
        for end in full: end.close()
        yield sent
{source}
def take():
    return next(source)
"""
SOCKETS = {
    "Unix connections that are not accepted": "source = connections(socket.AF_UNIX, '/tmp/server')",
    "abstract connections that are not accepted": r"source = connections(socket.AF_UNIX, '\0server')",
    "TCP connections that are not accepted": "source = connections(socket.AF_INET, ('127.0.0.1', 0))",
    "TCP connections over IPv6": "source = connections(socket.AF_INET6, ('::1', 0))",
    "Unix datagrams": "source = datagrams(socket.AF_UNIX, '/tmp/server')",
    "UDP datagrams": "source = datagrams(socket.AF_INET, ('127.0.0.1', 0))",
    "pairs of streams": "source = pairs(socket.SOCK_STREAM)",
    "pairs of datagrams": "source = pairs(socket.SOCK_DGRAM)",
    "pairs of packets": "source = pairs(socket.SOCK_SEQPACKET)",
    "pairs taken apart": "source = receivers()",
    "pairs in flight": "source = in_flight()",
}


@pytest.mark.parametrize("take", MEMORY.values(), ids=MEMORY)
def test_memory_counts_however_it_is_taken(take):
    ran = run(HOLD.replace("{take}", take), limits=SMALL)
    assert ran.status == "ok", ran.stderr
    assert int(ran.stdout) <= 200 + 64, "the limit on memory, and what /tmp may hold"


@needs_filter
@pytest.mark.parametrize("source", SOCKETS.values(), ids=SOCKETS)
def test_sockets_hold_little_memory_of_the_kernel(source):
    prepare, _, take = HOLD.partition("def take():\n{take}")
    ran = run(prepare + FILL.replace("{source}", source) + take, limits=SMALL)
    assert ran.status == "ok", ran.stderr
    assert int(ran.stdout) <= 64, "fewer files than the limit, each with the default buffer"


def test_children_hold_no_files_in_memory_either():
    source = (
        "import os, sys, time\n"
        "reader, writer = os.pipe()\n"
        "for _ in range(4):\n"
        "    if not os.fork():\n"
        "        held = 0\n"
        "        try:\n"
        "            while held < 500: os.write(os.memfd_create('x'), bytes(8 << 20)); held += 8\n"
        "        except OSError: pass\n"
        "        os.write(writer, b'%d\\n' % held); os._exit(0)\n"
        "for _ in range(4): os.wait()\n"
        "os.write(1, os.read(reader, 100))\n"
    )
    assert run(source, limits=SMALL).stdout.split() == [b"0"] * 4


FAMILIES = {
    "AF_NETLINK": 16, "AF_PACKET": 17, "AF_KEY": 15, "AF_RDS": 21, "AF_CAN": 29, "AF_TIPC": 30, "AF_BLUETOOTH": 31,
    "AF_ALG": 38, "AF_NFC": 39, "AF_VSOCK": 40, "AF_KCM": 41, "AF_QIPCRTR": 42, "AF_SMC": 43, "AF_XDP": 44, "AF_AX25": 3,
}  # fmt: skip
CALL = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nlibc.syscall.restype = ctypes.c_long\n"


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_sockets_of_other_families_are_refused(family):
    source = (
        "import socket\n"
        "for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):\n"
        f"    for make in (socket.socket, socket.socketpair):\n"
        f"        try: make({family}, kind); print('made')\n"
        "        except OSError as error: print(make.__name__, error.errno)\n"
    )
    assert set(run(source).stdout.splitlines()) == {b"socket 1", b"socketpair 97"}


@on_x86
@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("syscall(41, ctypes.c_ulong(0x100000010), 3, 0)", "netlink, with bits that the kernel does not look at"),
        ("syscall(41, ctypes.c_ulong(0xffffffff00000028), 1, 0)", "vsock, with bits that the kernel does not look at"),
        ("syscall(53, ctypes.c_ulong(0x100000010), 3, 0, ctypes.create_string_buffer(8))", "a pair of netlink"),
        ("syscall(0x40000000 + 41, 16, 3, 0)", "the numbers of x32"),
        ("syscall(0x40000000 + 319, b'x', 0)", "a file in memory by the numbers of x32"),
        ("syscall(319, b'x', 0)", "a file in memory"),
        ("syscall(319, b'x', ctypes.c_ulong(0x100000000))", "a file in memory, with more bits"),
        ("syscall(447, 0)", "secret memory"),
        ("syscall(29, 0, 1 << 20, 0o1600)", "System V shared memory"),
        ("syscall(425, 8, ctypes.create_string_buffer(200))", "io_uring, which opens sockets past any filter"),
        ("syscall(438, 3, 0, 0)", "a descriptor of another process"),
        ("syscall(323, 0)", "userfaultfd"),
    ],
)  # fmt: skip
def test_a_call_by_its_number_is_refused_too(call, why):
    ran = run(CALL + f"print(libc.{call}, ctypes.get_errno() in (1, 38, 97))")
    assert ran.stdout.split() == [b"-1", b"True"], why


@on_x86
@pytest.mark.parametrize("number", [102, 359, 356], ids=["socketcall", "socket", "memfd_create"])
def test_calls_of_32_bits_end_the_program(number):
    source = (
        "import ctypes, mmap\n"
        "code = mmap.mmap(-1, 4096, prot=7)\n"
        f"code.write(b'\\xb8' + ({number}).to_bytes(4, 'little') + b'\\xbb\\x28\\0\\0\\0\\xb9\\x01\\0\\0\\0\\xba\\0\\0\\0\\0\\xcd\\x80\\xc3')\n"
        "call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))\n"
        "print('made', call())\n"
    )
    ran = run(source)
    assert (ran.status, ran.stdout) == ("crashed", b"")


@needs_filter
def test_only_connected_pairs_of_sockets_can_be_had():
    source = (
        "import socket\n"
        "for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):\n"
        "    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):\n"
        "        try: socket.socket(family, kind); print('made')\n"
        "        except PermissionError: print('refused')\n"
    )
    assert run(source).stdout.split() == [b"refused"] * 6


def test_what_programs_use_pairs_of_sockets_for_still_works():
    source = (
        "import asyncio, multiprocessing, socket, subprocess, threading\n"
        "a, b = socket.socketpair()\na.send(b'pair')\nprint(b.recv(4).decode())\n"
        "async def main():\n"
        "    reader, writer = await asyncio.open_connection(sock=b)\n"
        "    a.send(b'loop\\n')\n"
        "    print((await reader.readline()).decode().strip())\n"
        "    done = await asyncio.create_subprocess_exec('echo', 'child', stdout=-1)\n"
        "    print((await done.communicate())[0].decode().strip())\n"
        "asyncio.run(main())\n"
        "here, there = multiprocessing.Pipe()\n"
        "child = multiprocessing.get_context('fork').Process(target=there.send, args=('process',))\n"
        "child.start()\nprint(here.recv())\nchild.join()\n"
        "print(subprocess.run(['echo', 'command'], capture_output=True, text=True).stdout.strip())\n"
    )
    ran = run(source)
    assert ran.stdout.split() == [b"pair", b"loop", b"child", b"process", b"command"], ran.stderr


# Writes machine code to where the init of the namespace waits: it then forgets to end with its parent, leaves its
# session, and waits for ever. An orphan that ends makes it go on. All that fails where the init is out of reach.
TAKE_OVER = """
import os, time
try:
    with open("/proc/1/syscall") as file: place = int(file.read().split()[-1], 16)
    code = bytes.fromhex("b89d000000bf0100000031f60f05b8700000000f05b8220000000f05ebf7")
    with open("/proc/1/mem", "r+b", buffering=0) as memory:
        memory.seek(place)
        memory.write(code)
except OSError: print("out of reach", flush=True)
if not os.fork():
    if not os.fork(): time.sleep(0.05)
    os._exit(0)
os.wait()
os.execv("/bin/sh", ["sh", "-c", "sleep 600; : {mark}"])
"""


class WithinReach(Bubblewrap):
    """Bubblewrap whose jobs see the init of their namespace."""

    @contextmanager
    def launch(self, job):
        with super().launch(job) as launch:
            shown = " ".join(launch.argv).replace(
                "--perms 0555 --size 4096 --tmpfs /proc/1 --remount-ro /proc/1", ""
            )
            yield replace(launch, argv=tuple(shown.split()))


@on_x86
def test_a_program_that_takes_over_its_init_does_not_outlive_its_limit():
    mark = f"caps-took-over-{os.getpid()}"
    job = PYTHON.job(TAKE_OVER.replace("{mark}", mark), limits=Limits(seconds=1))
    ran = asyncio.run(WithinReach(cores=1).run(job))
    assert ran.status == "timeout", ran.stderr
    assert processes_with(mark) == []
    if os.geteuid():
        assert ran.stdout == b"", "the init was within reach, as it is for ordinary users"


@on_x86
def test_a_program_does_not_outlive_the_process_that_runs_it(tmp_path):
    mark = f"caps-orphaned-{os.getpid()}"
    source = tmp_path / "program.py"
    source.write_text(TAKE_OVER.replace("{mark}", mark))
    run_it = "import sys; from pathlib import Path; from support.sandboxing import run; run(Path(sys.argv[1]).read_text())"
    runner = subprocess.Popen([sys.executable, "-c", run_it, source], env={**os.environ, "PYTHONPATH": TESTS})
    try:
        wait_until(lambda: processes_with(mark))
    finally:
        runner.kill()
        runner.wait()
    wait_until(lambda: not processes_with(mark))


def test_a_program_that_fills_its_folder_costs_only_itself_its_input():
    tests = case([{"input": "1 2", "output": "3"}, {"input": "2 2", "output": "4"}])
    filler = (
        "try:\n    n = 0\n    while True:\n        n += 1\n        open(f'/tmp/{n}', 'wb').write(bytes(1 << 20))\n"
        "except OSError: pass\nprint(sum(map(int, input().split())))"
    )
    full, right = grade(tests, filler, "print(sum(map(int, input().split())))", limits=UNHURRIED)
    assert full.correct is False
    assert right.correct is True


def test_large_inputs_and_outputs_pass_through_files_that_count():
    size = 3_000_000
    echo = case([{"input": "x" * size, "output": "x" * size}])
    assert grade(echo, "print(input())").correct is True
