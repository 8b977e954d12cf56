"""Programming languages whose programs can be run, where their tools are installed.

Python programs read standard input or are called at a function; programs in the other languages read standard
input. `caps doctor` says which tools are missing.
"""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace

from caps.sandbox.base import CERTAIN, Limits
from caps.sandbox.runner import ENVIRONMENT

PYTHON = "python"


@dataclass(frozen=True, slots=True)
class Toolchain:
    """How programs of a language are compiled and run. `file` names the source file of a program.

    `{file}` and `{name}`, the file without its ending, are filled into the commands. `reserves`: its runtime
    reserves more address space than it uses, so only what it uses is limited. `starts_slowly`: a run takes a
    tenth of a second at least.
    """

    name: str
    labels: tuple[str, ...]
    needs: tuple[str, ...]
    install: str
    file: Callable[[str], str]
    run: tuple[str, ...]
    compile: tuple[str, ...] = ()
    reserves: bool = False
    starts_slowly: bool = False

    @property
    def missing(self) -> str | None:
        """The first command that is not installed where the sandbox finds it."""
        return next((one for one in self.needs if shutil.which(one, path=ENVIRONMENT["PATH"]) is None), None)

    def commands(self, source: str) -> tuple[str, list[str], list[str]]:
        """The source file of a program, and the commands that compile and run it."""
        file = self.file(source)
        filled = {"file": file, "name": file.rpartition(".")[0]}
        compiling, running = ([part.format(**filled) for part in one] for one in (self.compile, self.run))
        return file, compiling, running

    def limits(self, limits: Limits) -> Limits:
        """The limits of a job; compilers and runtimes need more processes, files and space than programs."""
        address = 64 << 30 if self.reserves else None
        return replace(
            limits,
            cpu=max(CERTAIN * limits.seconds, COMPILE_SECONDS),
            memory=max(limits.memory, 2 << 30),
            address=address,
            processes=max(limits.processes, 64),
            files=max(limits.files, 256),
            scratch=max(limits.scratch, 256 << 20),
        )


COMPILE_SECONDS = 30.0
_CLASS = re.compile(r"\bclass\s+([A-Za-z_]\w{0,80})")
_PUBLIC = re.compile(r"\bpublic\s+(?:final\s+)?class\s+([A-Za-z_]\w{0,80})")


def _java_file(source: str) -> str:
    """A public class must be in a file of its name; else the class with `main` is the one to run."""
    public = _PUBLIC.search(source)
    before = source.partition("static void main")[0]
    classes = [public[1]] if public else _CLASS.findall(before)[-1:]
    return f"{classes[0] if classes else 'Main'}.java"


_TOOLCHAINS = (
    Toolchain(
        "javascript", ("js", "javascript", "node", "nodejs"), ("node",), "apt-get install nodejs",
        lambda _: "main.js", ("node", "--max-old-space-size=512", "{file}"), ("node", "--check", "{file}"),
        reserves=True, starts_slowly=True,
    ),
    Toolchain(
        "cpp", ("cpp", "c++", "cxx", "cc"), ("g++",), "apt-get install g++", lambda _: "main.cpp",
        ("./{name}",), ("g++", "-std=c++17", "-O1", "-pipe", "-w", "-o", "{name}", "{file}"),
    ),
    Toolchain(
        "java", ("java",), ("java", "javac"), "apt-get install default-jdk-headless", _java_file,
        ("java", "-Xmx512m", "-Xss64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
         "-cp", ".", "{name}"),
        ("javac", "-J-Xmx512m", "-J-XX:+UseSerialGC", "-J-XX:-UsePerfData", "-nowarn", "{file}"),
        reserves=True, starts_slowly=True,
    ),
)  # fmt: skip
TOOLCHAINS = {one.name: one for one in _TOOLCHAINS}
LABELS = {label: one.name for one in _TOOLCHAINS for label in one.labels} | dict.fromkeys(
    (PYTHON, "py", "python3"), PYTHON
)


def language_named(label: object) -> str | None:
    """The language that a fence or a case names, None if it names none that can be run."""
    return LABELS.get(label.strip().lower()) if isinstance(label, str) else None


def missing_tool(language: str) -> str | None:
    """What to install before programs of a language can be run; None if nothing is missing."""
    toolchain = TOOLCHAINS.get(language)
    if toolchain is None or toolchain.missing is None:
        return None
    return f"{toolchain.missing} is not installed: {toolchain.install}"
