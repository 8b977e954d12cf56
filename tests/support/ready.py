"""A Python that has loaded `caps` already; whoever gives it an order gets a fork of it that is the command from there on.

To start Python and load the commands takes longer than most runs, and so does taking apart at its end all that was
loaded. All the rest is as in a run of the installed command: a process with words, environment, folder, input and
output of its own, whose threads, exit functions and streams are seen to at its end.

    python ready.py FD     # orders come through this socket: JSON, and standard input, output, error and a pipe to tell
"""

import atexit
import gc
import json
import os
import pkgutil
import signal
import socket
import sys
import threading
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
    gc.collect()
    gc.freeze()  # or the collector of each fork would copy all of it


def take_orders(line: socket.socket) -> None:
    """Fork for every order; return in those forks alone, as the process that is to run the command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        order, streams, _, _ = socket.recv_fds(line, 1 << 20, 4)
        bury()
        if not order:
            os._exit(0)  # whoever gave the orders is gone
        if os.fork() == 0:
            line.close()
            return see_to(json.loads(order), streams)
        for stream in streams:
            os.close(stream)


def bury() -> None:
    """Wait for those who saw to a run and have ended, so that their seconds are counted."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def see_to(order: dict, streams: list[int]) -> None:
    """Tell the number of the process that runs the command and, in the end, how it ended."""
    *streams, told = streams
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


def run() -> int:
    """Run the command; its exit code, as Python reads it from what is raised."""
    try:
        main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def end(code: int) -> None:
    """End as Python ends, but for taking apart what `load` loaded."""
    threading._shutdown()
    atexit._run_exitfuncs()
    gc.collect()  # whatever was left open says so
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = 120
    os._exit(code)


if __name__ == "__main__":
    load()
    take_orders(socket.socket(fileno=int(sys.argv[1])))
    end(run())
