"""Rules of the tree that import-linter does not know."""

import ast
import importlib
import subprocess
import sys
from functools import cache
from pathlib import Path

import caps
from caps.registry import DOMAINS, STRATEGIES

SOURCE = Path(caps.__file__).parent
ROOT = Path(__file__).parents[2]
HEAVY = {
    "ray", "xllamacpp", "sympy", "math_verify", "starlette", "uvicorn", "prometheus_client", "playwright",
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
    shared = {"__init__", "belief", "dedup", "pairings", "adaptive", "agreement"}
    files = {path.stem for path in (SOURCE / "strategies").glob("*.py")} - shared
    registered = {entry.path.partition(":")[0].rpartition(".")[2] for entry in STRATEGIES.table.values()}
    assert files == registered


def test_every_public_name_has_a_docstring():
    aliases = {"Play"}  # of types, which have none: a comment stands beside it
    bare = [
        name
        for name in caps.__all__
        if not (getattr(caps, name).__doc__ or "").strip()
        or getattr(caps, name).__doc__.startswith(f"{name}(")
    ]
    assert set(bare) <= aliases


def test_the_public_names_are_these():
    assert set(caps.__all__) == {
        "AnswerError", "Candidate", "Capabilities", "Caps", "CapsError", "Case", "Client", "Completion", "Contest", "Dataset", "Domain",
        "Entrant", "Finder", "Found", "Grade", "Grader", "Group", "InputError",
        "JournalError", "Judge", "Keys", "Level", "LoadedRun", "Message", "MissingExtraError", "Model", "ModelError", "Objects", "Pairing", "Pick", "Play",
        "Posterior", "Problem", "Rating", "RecordedJudge", "Request", "Resources", "Round", "Ruling", "RunConfig", "SandboxError", "Selected", "Selection",
        "SettingError", "Solo", "Solved", "Sprint", "Strategy", "StrategyError", "Unanswered", "UnreadableJudgeError", "Usage", "UserError", "V1Infer",
        "Comparison", "Interval", "Verdict", "ConnectOptions", "best", "best_sync", "compare", "compare_results", "load_run", "open", "open_session", "pick", "rate",
        "register_domain", "resolve", "rows", "select", "select_many",
        "select_many_sync", "select_sync", "setting", "solve", "solve_sync", "stream", "BY_CLOCK", "LogFormat", "signature_named", "view_named",
    }  # fmt: skip
    assert all(hasattr(caps, name) for name in caps.__all__)
    assert set(caps.__all__) <= set(dir(caps))


def test_importing_caps_alone_loads_neither_models_nor_third_party_packages():
    words = "import sys, caps; print(sorted({'aiohttp', 'msgspec', 'rich', 'caps.api', 'caps.session'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nothing_compares_the_name_of_a_domain():
    """What differs between domains is a field of `Domain`; only tables name them. Made-up pools and modules are none."""
    known, tables = set(DOMAINS.table), {"registry.py", "studies/simulation.py", "sandbox/inside/prelude.py"}
    found = []
    for path in MODULES:
        where = str(path.relative_to(SOURCE))
        if where in tables:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                parts = [node.left, *node.comparators]
            elif isinstance(node, ast.Dict):
                parts = [key for key in node.keys if key is not None]
            elif isinstance(node, ast.MatchValue):
                parts = [node.value]
            else:
                continue
            texts = {
                one.value
                for part in parts
                for one in ast.walk(part)
                if isinstance(one, ast.Constant) and isinstance(one.value, str)
            }
            if texts & (known - {"code"}) or ("code" in texts and "domain" in ast.unparse(node)):
                found.append(f"{where}:{node.lineno}")
    assert not found


def test_benchmarks_and_scripts_import_what_there_is():
    for path in [*ROOT.glob("benchmarks/*.py"), *ROOT.glob("scripts/*.py")]:
        importlib.import_module(path.stem)
