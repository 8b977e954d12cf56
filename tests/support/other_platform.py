"""Runs commands as if on Windows or macOS, as far as Linux can pretend: `other_platform.py win32 '["list", "views"]'`.

What these systems do not have is taken away from the standard library before `caps` is imported: modules, signals,
timers and calls. What the standard library and the dependencies do on the real system is their own affair, so they
are imported first.
"""

import asyncio
import concurrent.futures.process
import importlib.abc
import json
import multiprocessing.connection
import os
import signal
import subprocess
import sys
import sysconfig

import aiohttp
import platformdirs
import rich.console
import rich.progress
import starlette.applications
import typer.main
import uvicorn.protocols.http.h11_impl

LOADED = (aiohttp, concurrent.futures.process, multiprocessing.connection, platformdirs, rich.console)
LOADED += (rich.progress, starlette.applications, typer.main, uvicorn.protocols.http.h11_impl)
MODULES = {"fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty", "uvloop"}
SIGNALS = (
    "SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGPROF SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 ITIMER_PROF "
    "ITIMER_REAL ITIMER_VIRTUAL alarm getitimer pause pthread_kill pthread_sigmask setitimer siginterrupt sigwait"
)
CALLS = (
    "O_CLOEXEC O_DIRECTORY O_NOCTTY O_NOFOLLOW O_NONBLOCK chown fchmod fchown fork getegid geteuid getgid getloadavg "
    "getpgid getpgrp getuid killpg mkfifo setsid statvfs sysconf uname wait4"
)
LINUX_ONLY = "memfd_create pidfd_open sched_getaffinity"


class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def refuse(*_):
    raise NotImplementedError


def pretend(platform):
    sysconfig.get_config_vars()
    for name in LINUX_ONLY.split():
        delattr(os, name)
    if platform == "win32":
        for name in MODULES:
            sys.modules.pop(name, None)
        sys.meta_path.insert(0, Refuse())
        kill = signal.SIGKILL
        subprocess.Popen.kill = lambda self: self.send_signal(kill)  # as it does there, in its own way
        for name in SIGNALS.split():
            delattr(signal, name)
        for name in CALLS.split():
            delattr(os, name)
        asyncio.SelectorEventLoop.add_signal_handler = refuse
        asyncio.SelectorEventLoop.remove_signal_handler = refuse
    sys.platform = platform


if __name__ == "__main__":
    platform, *commands = sys.argv[1:]
    pretend(platform)
    from caps.cli.main import main

    for command in commands:
        sys.argv = ["caps", *json.loads(command)]
        try:
            main()
        except SystemExit as ended:
            if ended.code:
                raise
