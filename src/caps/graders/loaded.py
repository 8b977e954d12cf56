"""Jobs that run one of our own programs inside the sandbox, around a candidate."""

from functools import cache
from importlib.resources import files

from caps.graders.sandbox import PYTHON, Job, Limits

_PACKAGE = "caps.graders.inside"
_NEEDED = {
    "feed": ("feed", "prelude", "wire"),
    "serve": ("serve", "plain", "prelude", "wire"),
    "examine": ("examine", "plain", "wire"),
}


def boot(name: str, limits: Limits, *, prelude: bool = False) -> Job:
    """The job that runs `inside/<name>.py`."""
    arguments = f"{limits.output}, prelude={prelude}" if name == "feed" else ""
    command = f"from {_PACKAGE}.{name} import main; main({arguments})"
    return Job((*PYTHON.argv, "-c", command), _sources(name), limits=limits)


@cache
def _sources(name: str) -> dict[str, bytes]:
    folder = files(_PACKAGE)
    place = _PACKAGE.replace(".", "/")
    return {f"{place}/{part}.py": (folder / f"{part}.py").read_bytes() for part in _NEEDED[name]}
