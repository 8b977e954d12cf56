"""Plug-ins of all kinds: found by entry point, by path, or in the working directory, and refused with a reason."""

import asyncio
import json
import re
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import caps as api
from caps.config import RunConfig
from caps.core.domains import Resources
from caps.core.errors import InputError, SettingError
from caps.datasets.case_files import parse_row
from caps.evidence import domains
from caps.evidence.domains import domain_named, guess_domain, register_domain
from caps.evidence.profiles import view_named
from caps.models.base import ConnectOptions
from caps.models.endpoints import connect
from caps.registry import DOMAINS, JUDGES, STRATEGIES, allow, names_code, resolve
from caps.session.parts import make_finders, make_grader, make_judge, make_strategy
from caps.session.resolve import strategy_of
from caps.testing import ScriptedEndpoint, better_quality_wins
from support.serving import inside
from support.shell import caps, installed, json_lines

EXAMPLES = Path(__file__).parents[2] / "examples"
SCHEMA = "create table staff (name, pay); insert into staff values ('Ada', 9), ('Bob', 5), ('Cy', 7);"
QUERIES = [
    "select name from staff order by pay limit 1 -- quality=0.6",
    "It is Cy, quality=0.5",
    "select name from staff order by pay desc limit 1 -- quality=0.4",
    "```sql\nSELECT name FROM staff WHERE pay = (SELECT max(pay) FROM staff); -- quality=0.3\n```",
]
SQL_CASE = {
    "domain": "sql",
    "problem": "Who is paid most?",
    "schema": SCHEMA,
    "gold": "select 'Ada'",
    "candidates": QUERIES,
}
PLUGIN = """
    import caps

    class Shorter:
        '''Prefers the shorter text.'''
        judge_id = "shorter-1"
        def __call__(self, problem, a, b):
            return "A" if len(a) < len(b) else "B"

    class Alphabet:
        capabilities = caps.Capabilities(asks_judge=False)
        '''Sorts by number.'''
        def play(self, entrants, rng):
            return caps.Selection(entrants[-1].id, tuple(sorted((one.id for one in entrants), reverse=True)))
            yield

    def shout(candidate):
        '''In capitals.'''
        return candidate.text.upper()

    POEMS = caps.Domain(name="poems", about="verses", signature=shout, partial=shout)
"""
METADATA = "Metadata-Version: 2.1\nName: caps-poems\nVersion: 1.5\n"
POINTS = """
    [caps.judges]
    shorter = poems_plugin:Shorter
    broken = poems_plugin:Missing
    [caps.strategies]
    alphabet = poems_plugin:Alphabet
    [caps.views]
    shout = poems_plugin:shout
    [caps.domains]
    poems = poems_plugin:POEMS
"""


@pytest.fixture
def package(tmp_path):
    """A folder with an installed package that adds things of several kinds."""
    folder = tmp_path / "site"
    about = folder / "caps_poems-1.5.dist-info"
    about.mkdir(parents=True)
    (folder / "poems_plugin.py").write_text(dedent(PLUGIN))
    (about / "METADATA").write_text(METADATA)
    (about / "entry_points.txt").write_text(dedent(POINTS))
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory of its own, with a module in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(dedent(PLUGIN))
    yield tmp_path
    sys.modules.pop("mine", None)
    domains._registered.pop("poems", None)


@pytest.fixture
def sql():
    domain = register_domain(domain_named_in_examples())
    yield domain
    domains._registered.pop("sql", None)


def domain_named_in_examples():
    allow(["py:own_domain:SQL"], str(EXAMPLES))
    return resolve(DOMAINS, "py:own_domain:SQL")


def written(folder, *rows):
    path = folder / "cases.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_everything_an_installed_package_adds_is_listed_with_the_package(package):
    done = installed("list", "plugins", "--json", PYTHONPATH=str(package))
    rows = {(row["kind"], row["name"]): row for row in json.loads(done.stdout)}
    assert rows.keys() >= {
        ("judge", "shorter"),
        ("strategy", "alphabet"),
        ("view", "shout"),
        ("domain", "poems"),
    }
    assert {row["package"] for row in rows.values()} == {"caps-agents 0.2.0", "caps-poems 1.5"}
    assert rows["domain", "poems"]["about"] == "verses"
    assert "cannot be loaded" in rows["judge", "broken"]["about"]
    table = installed("list", "judges", PYTHONPATH=str(package), COLUMNS="200").stdout
    assert re.search("poems_plugin:Shorter +caps-poems 1.5", table)


def test_a_judge_and_a_domain_of_an_installed_package_are_used_by_name(package, tmp_path):
    path = written(
        tmp_path, {"domain": "poems", "problem": "?", "candidates": ["a rose is", "a rose", "A Rose is"]}
    )
    done = installed("select", path, "--judge", "shorter", "--no-journal", PYTHONPATH=str(package))
    (line,) = json_lines(done)
    assert (line["winner"], line["clusters"]) == (1, 2), done.stderr


def test_a_part_of_a_package_of_this_project_names_the_package():
    with pytest.raises(InputError, match=r"'chat' is in the package caps-agents \(pip install "):
        parse_row({"domain": "chat", "problem": "?", "candidates": ["x"]}, default_id="1")


def test_code_of_the_working_directory_is_imported_where_a_user_names_it(here):
    path = written(here, {"domain": "poems", "problem": "?", "candidates": ["a rose is", "a rose"]})
    words = ["select", path, "--no-journal", "--judge", "py:mine:Shorter", "--domain", "py:mine:POEMS"]
    done = caps(*words, "--view", "full=py:mine:shout")
    assert json_lines(done)[0]["winner"] == 1, done.stderr
    (here / "own.toml").write_text('judge = "py:mine:Shorter"\ndomain = "py:mine:POEMS"\n')
    done = caps("select", path, "--no-journal", "--config", "own.toml")
    assert json_lines(done)[0]["winner"] == 1, done.stderr
    done = caps("select", path, "--no-journal", "--strategy", "py:mine:Alphabet", "--domain", "py:mine:POEMS")
    assert json_lines(done)[0]["winner"] == 1, done.stderr


def test_an_auto_loaded_settings_file_may_not_name_code(here):
    path = written(here, {"problem": "?", "candidates": ["a", "b"]})
    (here / "caps.toml").write_text('judge = "py:mine:Shorter"\n')
    (here / "mine.py").write_text("raise SystemExit('imported')")
    done = caps("select", path, "--strategy", "vanilla", "--no-journal")
    assert done.returncode == 2
    assert "an auto-loaded caps.toml cannot set this" in done.stderr


def test_no_case_request_or_config_imports_code_of_the_working_directory(here):
    (here / "mine.py").write_text("raise SystemExit('imported')")
    for name in ("py:mine:POEMS", "mine:POEMS", "json:dumps"):
        with pytest.raises(InputError, match="domain: .* must be one of code, math, general"):
            parse_row({"domain": name, "problem": "?", "candidates": ["a"]}, default_id="1")
    with pytest.raises(SettingError, match="only if it is named on the command line"):
        strategy_of(RunConfig(strategy="py:mine:Alphabet"))
    with pytest.raises(SettingError, match="only if it is named on the command line"):
        api.best_sync("?", ["a", "b"], judge="py:mine:Shorter")

    async def asked(server):
        bodies = [
            {"problem": "?", "candidates": ["a", "b"], "caps": {"domain": "py:mine:POEMS"}},
            {"problem": "?", "candidates": ["a", "b"], "caps": {"strategy": "py:mine:Alphabet"}},
            {"problem": "?", "candidates": ["a", "b"], "caps": {"judge": "py:mine:Shorter"}},
            {"problem": "?", "candidates": ["a", "b"], "domain": "py:mine:POEMS"},
        ]
        return [(await server("POST", "/v1/select", {**body, "model": "caps/m"})).status for body in bodies]

    with ScriptedEndpoint(better_quality_wins) as stub:
        assert inside(stub.url, asked) == [400] * 4
    assert "mine" not in sys.modules


def test_a_model_called_like_a_module_is_no_code():
    assert not names_code("qwen3:14b")
    assert names_code("package.module:Name")
    assert names_code("py:module:Name")
    with pytest.raises(SettingError, match="no strategy is called 'qwen3:14b'"):
        resolve(STRATEGIES, "qwen3:14b")


def test_an_unknown_domain_names_file_line_and_field_and_what_may_be_meant(tmp_path):
    good = {"problem": "?", "candidates": ["a"]}
    path = written(tmp_path, good, {**good, "domain": "maht"})
    done = caps("select", path, "--strategy", "vanilla", "--no-journal")
    assert (
        f"{path}:2: domain: 'maht' must be one of code, math, general, patch, trajectory; did you mean 'math'?"
        in done.stderr
    )
    done = caps("select", path, "--strategy", "vanilla", "--no-journal", "--domain", "maht")
    assert done.returncode == 2
    assert "no domain is called 'maht': did you mean 'math'?" in done.stderr


def test_a_domain_of_the_config_is_that_of_cases_that_state_none(tmp_path):
    path = written(tmp_path, {"problem": "?", "candidates": ["\\boxed{1}", "So it is 2 and\\boxed{1}"]})
    assert json_lines(caps("select", path, "--strategy", "majority", "--no-journal"))[0]["clusters"] == 1
    stated = caps("select", path, "--strategy", "majority", "--no-journal", "--domain", "general")
    assert json_lines(stated)[0]["clusters"] == 2
    assert "guessed" not in stated.stderr


#: Of each wrong plug-in: what it is to be, and what is said.
WRONG = {
    "NoPlay": ("strategy", "has no method play(entrants, rng), which a strategy needs"),
    "OtherPlay": ("strategy", "its method is play(entrants), and a strategy needs play(entrants, rng)"),
    "Explodes": ("strategy", "cannot be created: RuntimeError: boom"),
    "OneArgument": ("judge", "it takes (problem), but is called with (problem, a, b)"),
    "NoMaxUsage": ("judge", "has no method max_usage(prepared, ask), which a judge needs"),
    "OtherRule": ("judge", "its method is rule(prepared), and a judge needs rule(prepared, ask, budget)"),
    "NUMBER": ("judge", "must be a function (problem, a, b), or have the methods rule and max_usage"),
    "NoGrade": ("grader", "has no method grade(case, candidate), which a grader needs"),
    "NoVersion": ("grader", "has no version"),
    "NoFind": ("finder", "has no method find(case, until), which a finder needs"),
    "TwoArguments": ("view", "it takes (candidate, more), but is called with (candidate)"),
    "NoComplete": ("backend", "has no method complete(request), which a model backend needs"),
    "NUMBER ": ("domain", "not a caps.Domain"),
    "NAMELESS": ("domain", "a name consists of"),
    "WORDLESS": ("domain", "prompts = 'sql': must be one of code, math, general"),
    "NO_FUNCTION": ("domain", "signature = 3: must be a function of a candidate, or its name"),
    "Missing": ("strategy", "cannot be loaded"),
}
WRONG_CODE = """
    import caps

    class NoPlay: ...
    class OtherPlay:
        def play(self, entrants): ...
    class Explodes:
        def __init__(self): raise RuntimeError("boom")
    def OneArgument(problem): ...
    class NoMaxUsage:
        async def rule(self, prepared, ask, budget): ...
    class OtherRule:
        async def rule(self, prepared): ...
        def max_usage(self, prepared, ask): ...
    NUMBER = 3
    class NoGrade:
        def __init__(self, resources): ...
    class NoVersion(NoGrade):
        async def grade(self, case, candidate): ...
        async def close(self): ...
    class NoFind(NoGrade): ...
    def TwoArguments(candidate, more): ...
    class NoComplete:
        def __init__(self, wiring): ...
    NAMELESS = caps.Domain(name="two words")
    WORDLESS = caps.Domain(name="wordless", prompts="sql")
    NO_FUNCTION = caps.Domain(name="functionless", signature=3)
"""


def use(kind, path):
    match kind:
        case "strategy":
            make_strategy(path)
        case "judge":
            make_judge(path, 1.0)
        case "grader":
            asyncio.run(make_grader(path, "off", 1.0)())
        case "finder":
            register_domain(api.Domain(name="wrongly", finder=path))
            make_finders(Resources(sandbox="off"))
        case "view":
            view_named(path)
        case "backend":
            connect(ConnectOptions(address=path, model="m"))
        case "domain":
            domain_named(path)


@pytest.mark.parametrize("name", WRONG)
def test_a_plug_in_that_lacks_something_is_told_what(name, tmp_path, monkeypatch):
    kind, said = WRONG[name]
    (tmp_path / "wrong_plugins.py").write_text(dedent(WRONG_CODE))
    monkeypatch.syspath_prepend(tmp_path)
    path = f"wrong_plugins:{name.strip()}"
    with pytest.raises(SettingError) as caught:
        use(kind, path)
    domains._registered.pop("wrongly", None)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def (", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("import nothing_like_this", "nothing_like_this"),
    ],
)
def test_code_that_cannot_be_imported_is_no_traceback(here, code, said):
    (here / "bad.py").write_text(code)
    path = written(here, {"problem": "?", "candidates": ["a", "b"]})
    done = caps("select", path, "--no-journal", "--judge", "py:bad:Judge")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_model_that_fails_or_returns_something_else_is_a_model_error(tmp_path, monkeypatch):
    code = """
        class Fails:
            def __init__(self, wiring): ...
            async def complete(self, request): raise KeyError("choices")
            async def close(self): ...
        class Silent(Fails):
            async def complete(self, request): return None
    """
    (tmp_path / "failing_models.py").write_text(dedent(code))
    monkeypatch.syspath_prepend(tmp_path)
    request = api.Request((api.Message("user", "?"),), "m")
    for name, said in (("Fails", "KeyError: 'choices'"), ("Silent", "not a caps.Completion")):
        model = connect(ConnectOptions(address=f"failing_models:{name}", model="m"))
        with pytest.raises(api.ModelError, match=said):
            asyncio.run(model.complete(request))


def test_a_name_that_python_has_taken_is_not_imported_from_elsewhere(here):
    (here / "json.py").write_text("class Judge: ...")
    allow(["py:json:Judge", "py:nowhere:Judge"], str(here))
    with pytest.raises(SettingError, match="the name 'json' is used by"):
        resolve(JUDGES, "py:json:Judge")
    with pytest.raises(SettingError, match="there is no module 'nowhere'"):
        resolve(JUDGES, "py:nowhere:Judge")


def test_a_domain_may_not_take_a_built_in_name_and_is_never_guessed(sql):
    with pytest.raises(SettingError, match="a built-in domain has this name"):
        register_domain(api.Domain(name="math"))
    register_domain(api.Domain(name="eager", recognises=lambda *_: True))
    try:
        assert guess_domain({}, [api.Candidate("x")]) == "general"
    finally:
        domains._registered.pop("eager")


def test_sql_answers_are_chosen_alike_by_command_api_and_server(sql, tmp_path, monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    path = written(tmp_path, SQL_CASE)
    with ScriptedEndpoint(better_quality_wins) as stub:
        common = {"strategy": "posterior", "seed": 7}
        words = ["--domain", "py:own_domain:SQL", "--strategy", "posterior", "--seed", 7, "--no-journal"]
        (line,) = json_lines(caps("select", path, *words, "--model", "m", "--base-url", stub.url))
        chosen = api.select_sync(SQL_CASE, model="m", base_url=stub.url, **common)

        async def asked(server):
            body = {**SQL_CASE, "model": "caps/m", "caps": common}
            large = {**SQL_CASE, "model": "caps/m", "caps": common, "schema": SCHEMA + " " * 100_000}
            return [(await server("POST", "/v1/select", one)).json for one in (body, large)]

        served, large = inside(stub.url, asked)
    assert line["clusters"] == 3  # the two queries for Ada are one answer, though no words are equal
    assert line["winner"] == chosen.winner == served["winner"] == large["winner"]
    assert line["order"] == list(chosen.order) == served["order"] == large["order"]
    assert large["clusters"] == served["clusters"] == 3


def test_a_named_judge_chooses_alike_by_command_api_and_server(tmp_path, monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(EXAMPLES)
    row = {"domain": "general", "problem": "Double x.", "candidates": ["2 * x + 0", "2 *", "2 * x"]}
    name = "own_judge:ShorterProgram"
    (line,) = json_lines(caps("select", written(tmp_path, row), "--judge", f"py:{name}", "--no-journal"))
    chosen = api.select_sync(row, judge=name)

    async def asked(server):
        return (await server("POST", "/v1/select", row)).json

    with ScriptedEndpoint(better_quality_wins) as stub:
        served = inside(stub.url, asked, config_={"judge": name})
        assert not stub.bodies
    assert line["winner"] == chosen.winner == served["winner"] == 2
    assert line["order"] == list(chosen.order) == served["order"]


def test_sql_answers_are_graded_and_a_grader_can_be_named(tmp_path, monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    path = written(tmp_path, SQL_CASE)
    done = caps("grade", path, "--domain", "py:own_domain:SQL", "--no-journal")
    labels = [one["correct"] for one in json_lines(done)[0]["candidates"]]
    assert labels == [False, False, True, True], done.stderr
    number = {"problem": "What is pi?", "answer": 3.14159, "candidates": ["3.14", "4"]}
    done = caps("grade", written(tmp_path, number), "--grader py:own_grader:WithinOnePercent --no-journal")
    assert [one["correct"] for one in json_lines(done)[0]["candidates"]] == [True, False], done.stderr


def test_a_finder_sees_no_truth_and_what_it_reads_is_part_of_its_key(tmp_path):
    seen = []

    class Spy:
        version = "spy-1"

        def __init__(self, resources): ...

        async def find(self, case, until=None):
            seen.append(case)
            return [api.Found("same") for _ in case.candidates]

        async def close(self): ...

    register_domain(api.Domain(name="spied", finder=Spy, fields=("schema", "tests")))
    row = {
        "domain": "spied", "problem": "?", "schema": "s", "answer": "1",
        "tests": {"public": [1], "hidden": [2]}, "candidates": [{"text": "a", "correct": True}, "b"],
    }  # fmt: skip
    journal = tmp_path / "journal.sqlite"
    try:
        for schema in ("s", "s", "t"):
            api.select_sync({**row, "schema": schema}, strategy="majority", journal=journal)
    finally:
        domains._registered.pop("spied")
    assert [case.extra for case in seen] == [{"schema": s, "tests": {"public": [1]}} for s in ("s", "t")]
    assert all(one.correct is None for case in seen for one in case.candidates)


def test_a_run_with_a_judge_of_ones_own_is_replayed_and_reported_without_its_code(here, tmp_path):
    path = written(here, {"problem": "?", "candidates": ["a rose is", "a rose", "rose"]})
    done = caps("select", path, "--judge py:mine:Shorter --journal", here / "j.sqlite", "--out", here / "run")
    assert done.returncode == 0, done.stderr
    (here / "mine.py").unlink()
    again = caps("replay", here / "run")
    assert again.returncode == 0, again.stderr
    assert json_lines(again)[0]["winner"] == json_lines(done)[0]["winner"] == 2
    assert caps("report", here / "run").returncode == 0
    other = caps("select", path, "--strategy", "vanilla", "--out", here / "run", "--no-journal")
    assert other.returncode == 2


def test_a_run_of_a_domain_of_ones_own_is_replayed_when_that_is_named_again(tmp_path, monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    path = written(tmp_path, SQL_CASE)
    words = ["--domain", "py:own_domain:SQL", "--strategy", "majority"]
    done = caps("select", path, *words, "--journal", tmp_path / "j.sqlite", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    again = caps("replay", tmp_path / "run", "--domain", "py:own_domain:SQL")
    assert again.returncode == 0, again.stderr
    assert json_lines(again)[0]["winner"] == json_lines(done)[0]["winner"]
    lacking = caps("replay", tmp_path / "run")
    assert "domain: 'sql' must be one of" in lacking.stderr


def test_the_command_line_may_name_code_of_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    path = written(tmp_path, {"problem": "?", "candidates": ["high", "4806 m", "4 km"]})
    words = "--model digits --base-url py:own_model:connect --view partial=py:own_view:last_lines"
    done = caps("select", path, words, "--no-journal")
    assert json_lines(done)[0]["winner"] == 1, done.stderr
    rows = written(
        tmp_path, {"country": "France", "capital": "Paris"}, {"country": "Peru", "capital": "Lima"}
    )
    done = caps("import", rows, "--dataset", "py:own_dataset:CAPITALS")
    assert [line["answer"] for line in json_lines(done)] == ["Paris", "Lima"], done.stderr


def test_a_domain_brings_its_own_prompts_which_are_part_of_the_journal_key(tmp_path, monkeypatch):
    monkeypatch.setattr(domains, "_registered", {})
    text = "Haiku contest. {problem}\n{a}\n{b}\n<winner>A-{code} or B-{code}</winner> <confidence>HIGH</confidence>"
    case = {"domain": "haiku", "problem": "Snow.", "candidates": ["one quality=0.9", "two quality=0.1"]}
    seen = []

    def recording(body, number):
        seen.append(body["messages"][0]["content"])
        return better_quality_wins(body)

    with ScriptedEndpoint(recording) as server:
        for version in (text, text, text + " Be strict."):
            register_domain(api.Domain(name="haiku", templates={"pair-e2": version}))
            chosen = api.select_sync(
                case, model="m", base_url=server.url, strategy="round-robin", journal=str(tmp_path / "j")
            )
            assert chosen.winner == 0
    prompts = [prompt for prompt in seen if "Haiku contest." in prompt]
    assert len(prompts) == 2, "the same prompt is not asked twice, a changed one is asked again"
    assert prompts[1].endswith("Be strict.")


@pytest.mark.parametrize(
    ("templates", "message"),
    [
        ({"pair": "{problem} {a} {b} {code}"}, "'pair' must be one of pair-e1"),
        ({"solo": "{problem} {candidate}"}, "with {problem} and {code}"),
        ({"solo": 7}, "with {problem} and {code}"),
    ],
)
def test_a_domain_with_wrong_templates_is_refused_with_the_reason(templates, message):
    with pytest.raises(SettingError, match=message.replace("{", r"\{").replace("}", r"\}")):
        register_domain(api.Domain(name="haiku-2", templates=templates))
