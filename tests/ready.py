"""A Python that has loaded `caps` already; whoever gives it an order gets a fork of it that is the command from there on.

To start Python and load the commands takes longer than most runs. All the rest is as in a run of the installed
command: a process of its own with words, environment, folder, input and output of its own, that ends as Python ends.

    python ready.py FD     # orders come through this socket: JSON, and standard input, output, error and a pipe to tell
"""

import json
import os
import pkgutil
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module

import caps
from caps.cli.main import main

# What runs by being loaded, what runs in a sandbox only, and what runs inside other tools only.
APART = ("caps.__main__", "caps.sandbox.inside", "caps.integrations")
OFTEN = "genai_prices"  # of what is loaded when it is needed: most runs need a price


def load() -> None:
    """Load whatever a command might; packages that are heavy are loaded by those who need them, as ever."""
    for module in pkgutil.walk_packages(caps.__path__, "caps."):
        if not module.name.startswith(APART):
            import_module(module.name)
    with suppress(ImportError):
        import_module(OFTEN)


def take_orders(line: socket.socket) -> None:
    """Fork for every order; return in those forks alone, as the process that is to run the command."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who see to a run
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        order, streams, _, _ = socket.recv_fds(line, 1 << 20, 4)
        if not order:
            os._exit(0)  # whoever gave the orders is gone
        if os.fork() == 0:
            line.close()
            return see_to(json.loads(order), streams)
        for stream in streams:
            os.close(stream)


def see_to(order: dict, streams: list[int]) -> None:
    """Tell the number of the process that runs the command and, in the end, how it ended."""
    *streams, told = streams
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if (command := os.fork()) == 0:
        os.close(told)
        return become(order, streams)
    for stream in streams:
        os.close(stream)
    os.write(told, f"{command}\n".encode())
    _, status = os.waitpid(command, 0)
    os.write(told, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def become(order: dict, streams: list[int]) -> None:
    """Take on what a started command would find."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
        os.close(stream)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = order["words"]
    own = [place for place in order["environment"].get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.path[0:1] = [os.path.dirname(sys.argv[0]), *own]  # noqa: PTH120  # as Python itself does it


if __name__ == "__main__":
    load()
    take_orders(socket.socket(fileno=int(sys.argv[1])))
    sys.exit(main())
