"""Send malformed requests to a running `caps serve`, for minutes instead of seconds; needs network.

First every API gets requests that are damaged by chance, from seeds. Then schemathesis, in an environment of
its own, generates requests from the server's OpenAPI description. An answer with status 500 or more, or an
error in another form than its API has, fails.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import venv
from collections import Counter, deque
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp

from caps.testing import ManyApis, Raw, running
from support.fuzzing import APIS

HERE = Path(__file__).parent
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


class Caller:
    """Calls a server over HTTP as the tests call one in their own process."""

    def __init__(self, address: str, session: aiohttp.ClientSession) -> None:
        self._address, self._session, self.log = address, session, StringIO()
        self.statuses: Counter[int] = Counter()

    async def __call__(self, *, path: str, body: bytes) -> Any:
        """Post a body; status, bytes and JSON of the answer."""
        headers = {"Content-Type": "application/json"}
        async with self._session.post(self._address + path, data=body, headers=headers) as response:
            said = await response.read()
        self.statuses[response.status] += 1
        found = None if response.status == 200 else json.loads(said)
        return SimpleNamespace(status=response.status, body=said, json=found)


async def damage(address: str, apis: tuple[str, ...], count: int, seed: int) -> None:
    """Send damaged requests of each API, several at a time."""
    from support.fuzzing import fuzz  # noqa: PLC0415

    async with aiohttp.ClientSession() as session:
        for api in apis:
            call = Caller(address, session)
            shares = [fuzz(call, api, seed=seed + one, count=count // 8) for one in range(8)]
            await asyncio.gather(*shares)
            seen = ", ".join(f"{number:,} x {status}" for status, number in sorted(call.statuses.items()))
            print(f"{api}: {call.statuses.total():,} damaged requests: {seen}")


def generate(address: str, seconds: int, seed: int) -> int:
    """Run schemathesis against the description of the server."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        install = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "schemathesis"]
        subprocess.run(install, check=True)  # noqa: S603
        command = [
            *(python.with_name("schemathesis"), "run", f"{address}/openapi.json", "--url", address),
            *("--checks", CHECKS, "--max-time", str(seconds), "--seed", str(seed), "--workers", "1"),
            *("--suppress-health-check", "all", "--warnings", "off", "--phases", "coverage,fuzzing"),
        ]
        return subprocess.run(command, check=False, cwd=folder).returncode  # noqa: S603


def main() -> int:
    """Start a stub and the server in front of it, and send both kinds of requests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="damaged requests of each API")
    parser.add_argument("--seconds", type=int, default=300, help="of schemathesis; 0 leaves it out")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    reply = json.dumps({"choices": [{"message": {"content": "same"}}]}).encode()
    words = ("--model", "m", "--samples", 2, "--max-connections", 64)
    with ManyApis([Raw(reply)], models=("m",)) as stub, running(stub.url, "--keep-going", *words) as serving:
        address = serving.url.removesuffix("/v1")
        # What the server logs is read and dropped: a full pipe would stop it.
        threading.Thread(target=deque, args=(serving.process.stderr, 0), daemon=True).start()
        asyncio.run(damage(address, APIS, args.count, args.seed))
        return generate(address, args.seconds, args.seed) if args.seconds else 0


if __name__ == "__main__":
    sys.exit(main())
