"""Write `src/caps/session/keywords.py`: the typed keywords of the Python API, from `RunConfig`.

python scripts/api_keywords.py            # `make docs` runs it; a test compares the file
"""

import subprocess
import sys
from pathlib import Path

from caps.config import options
from caps.config.option import Option

FILE = Path(__file__).resolve().parent.parent / "src" / "caps" / "session" / "keywords.py"
#: Settings whose keyword also takes an object.
OBJECTS = {
    "model": "str | Model | None",
    "judge": "Judge | JudgeFunction | str | Sequence[JudgeLike] | None",
    "strategy": "Strategy | str",
    "preset": "Preset | str",
    "method": "Method | str",
}
GENERATION = ("generation", "domain")
TOTALS = ("total budget", "total budget seconds")
#: Groups of settings of commands, servers and other engines, which the functions do not have.
LEFT_OUT = ("cases", "calibrate", "virtual models", "engine")

HEAD = '''"""Keywords of the Python API, typed; scripts/api_keywords.py writes this file from `RunConfig`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from caps.core.play import Strategy
from caps.judging.base import Judge
from caps.judging.callables import JudgeFunction
from caps.models.base import Model
from caps.sampling.base import Method, Preset

JudgeLike = Judge | JudgeFunction | str | Mapping[str, Any]


class ModelOptions(TypedDict, total=False):
    """Keywords of every function: the model and its key, the strategy, the journal, prices and limits."""

    api_key: str | None
    judge_api_key: str | None
'''


def annotation(setting: Option) -> str:
    """The type of the keyword of a setting."""
    kinds = {
        "text": "str", "integer": "int", "number": "float", "flag": "bool", "list": "str | Sequence[str]",
        "mapping": "Mapping[str, object]", "tables": "Sequence[str | Mapping[str, object]]",
        "integer or auto": 'int | Literal["auto"]',
    }  # fmt: skip
    if setting.name in OBJECTS:
        return OBJECTS[setting.name]
    kind = kinds[setting.kind]
    if setting.choices:
        named = ", ".join(f'"{choice}"' for choice in setting.choices)
        kind = f"Literal[{named}]"
    elif setting.is_path:
        kind = "str | Path"
    return f"{kind} | None"  # None is the default


def lines(*, within: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> list[str]:
    """The keywords of some groups of settings, or of all but some."""
    rows = []
    for setting in options().values():
        wanted = setting.group in within if within else setting.group not in without
        if wanted and setting.kind != "judges":
            name = "n" if setting.name == "samples" else setting.name
            rows.append(f"    {name}: {annotation(setting)}")
    return rows


def text() -> str:
    """The whole module."""
    parts = [
        HEAD.rstrip(),
        *lines(without=(*LEFT_OUT, *GENERATION, *TOTALS)),
        '\n\nclass SelectOptions(ModelOptions, total=False):\n    """Keywords of `select`."""\n',
        *lines(within=("domain",)),
        '\n\nclass BestOptions(ModelOptions, total=False):\n    """Keywords of `best`."""\n',
        *lines(within=("domain",)),
        "\n\nclass ManyOptions(ModelOptions, total=False):",
        '    """Keywords of `select_many` and `stream`: how tables are read, and total budgets."""\n',
        "    group_by: str | None",
        "    map: Mapping[str, str] | str | None",
        "    progress: bool",
        *lines(within=("domain",)),
        *lines(within=TOTALS),
        "\n\nclass SolveOptions(ModelOptions, total=False):",
        '    """Keywords of `solve`: how answers are generated."""\n',
        *lines(within=GENERATION),
        "\n\nclass OpenOptions(SolveOptions, total=False):",
        '    """Keywords of `open`: those of `solve`, and budgets of all calls together."""\n',
        *lines(within=TOTALS),
    ]
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(FILE), "-"],
        input="\n".join(parts) + "\n", capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


if __name__ == "__main__":
    FILE.write_text(text())
