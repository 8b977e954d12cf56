"""optillm: its proxy with best-of-n; as many requests at once as calls may be in flight, each one by one.

What is measured is the proxy, not the client in front of it.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from driving import drive, task

GIVEN = task()


def free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])


def started(port: int) -> "subprocess.Popen[bytes]":
    n = len(GIVEN.cases[0]["candidates"])
    words = ["--base-url", GIVEN.url, "--approach", "bon", "--best-of-n", str(n), "--port", str(port)]
    program = str(Path(sys.executable).with_name("optillm"))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    proxy = subprocess.Popen(  # noqa: S603
        [program, *words, "--log", "error"], env=os.environ | {"OPENAI_API_KEY": "none"}, **quiet
    )
    for _ in range(300):
        time.sleep(0.1)
        try:
            urlopen(f"http://127.0.0.1:{port}/health").close()
        except OSError:
            continue
        return proxy
    proxy.kill()
    raise SystemExit("the proxy did not start")


def main() -> None:
    port = free_port()
    proxy = started(port)

    def one(case: Mapping[str, Any]) -> str:
        body = {"model": "stub", "messages": [{"role": "user", "content": case["problem"]}]}
        head = {"Content-Type": "application/json", "Authorization": "Bearer none"}
        where = f"http://127.0.0.1:{port}/v1/chat/completions"
        with urlopen(Request(where, json.dumps(body).encode(), head), timeout=600) as reply:
            return str(json.load(reply)["choices"][0]["message"]["content"])

    def select(cases: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        with ThreadPoolExecutor(GIVEN.connections) as pool:
            return {case["id"]: pick for case, pick in zip(cases, pool.map(one, cases), strict=True)}

    def use() -> tuple[float, float]:
        """Of the proxy."""
        spent = Path(f"/proc/{proxy.pid}/stat").read_text().rpartition(")")[2].split()
        peak = Path(f"/proc/{proxy.pid}/status").read_text().partition("VmHWM:")[2].split()[0]
        return (int(spent[11]) + int(spent[12])) / os.sysconf("SC_CLK_TCK"), int(peak) / 1024

    try:
        drive(GIVEN, select, use)
    finally:
        proxy.kill()
        proxy.wait()


main()
