"""Jobs that run one of our own programs inside the sandbox, around a candidate."""

import marshal
from functools import cache
from importlib.resources import files
from importlib.util import MAGIC_NUMBER

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
    return Job((*PYTHON.argv, "-c", command), _compiled(name), limits=limits)


@cache
def _compiled(name: str) -> dict[str, bytes]:
    """The modules as Python keeps them when compiled; the interpreter inside is the one that runs us."""
    place = _PACKAGE.replace(".", "/")
    return {f"{place}/{part}.pyc": _compile(part) for part in _NEEDED[name]}


def _compile(name: str) -> bytes:
    source = (files(_PACKAGE) / f"{name}.py").read_bytes()
    code = compile(source, f"{name}.py", "exec", dont_inherit=True)
    return MAGIC_NUMBER + bytes(12) + marshal.dumps(code)
