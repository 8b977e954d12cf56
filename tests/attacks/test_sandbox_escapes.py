"""Ways around the sandbox's limits that system calls would open: memory nobody counts, sockets no namespace holds."""

import platform

import pytest

from caps.sandbox.base import Limits
from sandboxing import UNHURRIED, case, grade, needs_bubblewrap, run

pytestmark = needs_bubblewrap
SMALL = Limits(seconds=20, memory=200 << 20)
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
sys.stdout.write(str(held))
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
    "files in the root": "    fd = os.open('/', os.O_TMPFILE | os.O_RDWR); kept.append(fd); os.write(fd, bytes(8 << 20)); return 8",
}  # fmt: skip


@pytest.mark.parametrize("take", MEMORY.values(), ids=MEMORY)
def test_memory_counts_however_it_is_taken(take):
    ran = run(HOLD.format(take=take), limits=SMALL)
    assert ran.status == "ok", ran.stderr
    assert int(ran.stdout) <= 200 + 64, "the limit on memory, and what /tmp may hold"


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
        "        except OSError as error: print(error.errno)\n"
    )
    assert set(run(source).stdout.split()) == {b"97"}


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


def test_sockets_that_programs_use_are_still_there():
    source = (
        "import asyncio, socket\n"
        "a, b = socket.socketpair()\na.send(b'x')\nprint(b.recv(1))\n"
        "print([socket.socket(family, kind).family.name for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)])\n"
        "async def main(): return 'loops work'\nprint(asyncio.run(main()))\n"
    )
    ran = run(source)
    assert ran.stdout.splitlines() == [
        b"b'x'", b"['AF_UNIX', 'AF_UNIX', 'AF_INET', 'AF_INET', 'AF_INET6', 'AF_INET6']", b"loops work",
    ]  # fmt: skip


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
