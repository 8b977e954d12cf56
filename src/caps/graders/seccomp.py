"""A filter of system calls: what no graded program needs and what could get around the limits.

Namespaces would give a program mounts without bounds; System V shared memory and files in memory (memfd) are
not counted as its own; the rest is the kernel's less trodden ground. They fail as if not permitted. Sockets
are of the internet or of this machine, and a network namespace keeps both within: other families (virtual
machine sockets, which know no namespaces, netlink and the rest) fail as if there were none.
"""

import errno
import platform
import socket
import struct
from functools import cache
from typing import NamedTuple


class _Machine(NamedTuple):
    audit: int
    clone: int
    sockets: tuple[int, int]
    denied: tuple[int, ...]


# Numbers from 424 on are the same everywhere: io_uring_setup, open_tree, move_mount, fsopen, pidfd_getfd,
# mount_setattr, memfd_secret.
_COMMON = (425, 428, 429, 430, 438, 442, 447)
_CLONE3 = 435  # its flags lie in memory where a filter cannot look; without it, libraries use clone
_NEW_USER = 0x10000000
# In this order: unshare setns mount umount2 pivot_root ptrace process_vm_readv process_vm_writev keyctl
# add_key request_key bpf perf_event_open userfaultfd shmget msgget semget open_by_handle_at kexec_load
# init_module finit_module memfd_create. `sockets` are socket and socketpair.
_MACHINES = {
    "x86_64": _Machine(
        0xC000003E,
        56,
        (41, 53),
        (
            272,
            308,
            165,
            166,
            155,
            101,
            310,
            311,
            250,
            248,
            249,
            321,
            298,
            323,
            29,
            68,
            64,
            304,
            246,
            175,
            313,
            319,
        ),
    ),
    "aarch64": _Machine(
        0xC00000B7,
        220,
        (198, 199),
        (
            97,
            268,
            40,
            39,
            41,
            117,
            270,
            271,
            219,
            217,
            218,
            280,
            241,
            282,
            194,
            186,
            190,
            265,
            104,
            105,
            273,
            279,
        ),
    ),
}
_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _AUDIT, _FIRST = 0, 4, 16  # offsets in what a filter is shown
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000


@cache
def build_filter(machine: str = platform.machine()) -> bytes:
    """The filter as the kernel reads it; on a machine whose numbers are not listed it allows everything."""
    if machine not in _MACHINES:
        return _step(_RETURN, _ALLOW)
    audit, clone, sockets, denied = _MACHINES[machine]
    steps = [_step(_LOAD, _AUDIT), _step(_EQUAL, audit, 1, 0), _step(_RETURN, _KILL), _step(_LOAD, _NUMBER)]
    if machine == "x86_64":  # a second set of numbers for the same calls
        steps += [_step(_AT_LEAST, 0x40000000, 0, 1), _step(_RETURN, _FAIL | errno.ENOSYS)]
    steps += [_step(_EQUAL, _CLONE3, 0, 1), _step(_RETURN, _FAIL | errno.ENOSYS)]
    for number in (*denied, *_COMMON):
        steps += [_step(_EQUAL, number, 0, 1), _step(_RETURN, _FAIL | errno.EPERM)]
    for number in sockets:
        steps += [_step(_EQUAL, number, 0, len(_FAMILIES) + 3), _step(_LOAD, _FIRST)]
        steps += [_step(_EQUAL, family, len(_FAMILIES) - place) for place, family in enumerate(_FAMILIES)]
        steps += [_step(_RETURN, _FAIL | errno.EAFNOSUPPORT), _step(_RETURN, _ALLOW)]
    steps += [_step(_EQUAL, clone, 0, 3), _step(_LOAD, _FIRST), _step(_ANY_BIT, _NEW_USER, 0, 1)]
    steps += [_step(_RETURN, _FAIL | errno.EPERM), _step(_RETURN, _ALLOW)]
    return b"".join(steps)


def _step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)
