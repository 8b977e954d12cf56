"""Programs for workers to run, well and badly behaved."""

import json
import os
import signal
import sys
import time

from caps.workers.child import limit_cpu, limit_memory


def serve(memory=0):
    if memory:
        limit_memory(memory)
    say("ready")
    for line in sys.stdin:
        request, *_ = json.loads(line)
        say(DEEDS[request]())


def say(value):
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def work():
    limit_cpu(0.2)
    while True:
        pass


def eat():
    try:
        return len(bytearray(1 << 33))
    except MemoryError:
        return "no more"


DEEDS = {
    "pid": os.getpid,
    "environment": lambda: sorted(os.environ),
    "sleep": lambda: time.sleep(60),
    "die": die,
    "work": work,
    "eat": eat,
    "shout": lambda: "x" * (1 << 20),
}


def never_ready():
    sys.exit(3)
