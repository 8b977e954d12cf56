"""Run the npm client of the OpenAI API against `caps serve` over a stub; needs node, npm, network."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from caps.testing import ScriptedEndpoint, running, upstream

HERE = Path(__file__).parent


def main() -> int:
    """Fetch the client into a temporary folder, start both servers, and let it talk."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        print("no node or npm on this machine: nothing was tried")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([npm, "install", "--silent", "--prefix", folder, "openai"], check=True)  # noqa: S603
        with ScriptedEndpoint(upstream, models=("m",)) as stub, running(stub.url) as serving:
            command = [node, str(HERE / "node_client.mjs"), serving.url, folder]
            return subprocess.run(command, check=False).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
