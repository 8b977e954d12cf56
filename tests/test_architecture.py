"""Rules of the tree that import-linter does not know."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import caps
from caps.registry import STRATEGIES

SOURCE = Path(caps.__file__).parent
HEAVY = {
    "ray", "xllamacpp", "sympy", "math_verify", "starlette", "uvicorn", "prometheus_client", "matplotlib", "playwright",
    "pyarrow",
}  # fmt: skip
MODULES = sorted(SOURCE.rglob("*.py"))


@cache
def imports_of(path):
    return list(_imports(path))


def _imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def test_a_heavy_package_is_imported_from_one_module_only():
    for package in HEAVY:
        users = [path for path in MODULES if package in imports_of(path)]
        assert len(users) <= 1, (package, users)


def test_importing_caps_loads_nothing_heavy():
    top_level = {
        name
        for path in MODULES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in imports_of_node(node)
    }
    assert not top_level & HEAVY


def imports_of_node(node):
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    return [(node.module or "").partition(".")[0]]


def test_nothing_is_ever_unpickled():
    users = {path.name for path in MODULES if {"pickle", "shelve", "dill"} & set(imports_of(path))}
    assert not users
    assert not [path.name for path in MODULES if "marshal.load" in path.read_text()]


def test_every_strategy_file_stands_in_the_registry():
    shared = {"__init__", "belief", "dedup", "pairings", "verdicts"}
    files = {path.stem for path in (SOURCE / "strategies").glob("*.py")} - shared
    registered = {entry.path.partition(":")[0].rpartition(".")[2] for entry in STRATEGIES.table.values()}
    assert files == registered


def test_the_public_names_are_these():
    assert set(caps.__all__) == {
        "AnswerError", "Candidate", "Capabilities", "Caps", "CapsError", "Case", "Contest", "Entrant", "Group", "InputError",
        "JournalError", "Judge", "Keys", "Level", "LoadedRun", "MissingExtraError", "ModelError", "Pairing", "Pick", "Play",
        "Posterior", "Problem", "Rating", "RecordedJudge", "Round", "Ruling", "RunConfig", "Runner", "SandboxError", "Selected", "Selection",
        "SettingError", "Solo", "Solved", "Sprint", "Strategy", "StrategyError", "Unanswered", "Usage", "UserError", "V1Infer",
        "Verdict", "best", "best_sync", "compare", "load_run", "pick", "rate", "rows", "select", "select_many",
        "select_many_sync", "select_sync", "setting", "solve", "solve_sync", "stream",
    }  # fmt: skip
    assert all(hasattr(caps, name) for name in caps.__all__)
    assert set(caps.__all__) <= set(dir(caps))


def test_importing_caps_alone_loads_neither_models_nor_third_party_packages():
    words = "import sys, caps; print(sorted({'aiohttp', 'msgspec', 'rich', 'caps.api', 'caps.runner'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
