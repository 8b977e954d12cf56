"""The same candidates, judge and settings give the same choice through every entry point.

One stub server generates the candidates (by seed) and judges them (by the `quality=` they carry), so `solve` and chat
completions, which generate, end up with the very candidates that the others are given.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import caps as api
from caps.datasets.case_files import parse_case
from caps.testing import Reply, ScriptedEndpoint, better_quality_wins, is_judge, write_cases
from support.batching import select_in_batches, to_the_end
from support.running import CONNECTED, run_cases
from support.sandboxing import needs_bubblewrap
from support.serving import inside
from support.shell import caps, json_lines

QUESTION = "What is one half?"
SEED = 1234
#: Two of six write one half in two ways; whether they count as one answer decides the vote.
HALVES = (
    (0.50, "2"),
    (0.55, "0.5"),
    (0.20, "2"),
    (0.30, r"\frac{1}{2}"),
    (0.35, "1/2"),
    (0.10, "7"),
)


@dataclass
class Contest:
    """Candidates (quality and boxed answer), settings of the strategy, and where the judge is."""

    candidates: tuple[tuple[float, str], ...] = HALVES
    strategy: str = "posterior"
    settings: dict[str, object] = field(default_factory=dict)
    seed: int = SEED
    url: str = ""
    folder: Path = Path()

    @property
    def texts(self) -> list[str]:
        return [f"With quality={quality} it is \\boxed{{{answer}}}" for quality, answer in self.candidates]

    @property
    def row(self) -> dict:
        return {"domain": "math", "problem": QUESTION, "candidates": self.texts}

    @property
    def options(self) -> list[object]:
        words = [word for name, value in self.settings.items() for word in ("--set", f"{name}={value}")]
        return ["--strategy", self.strategy, *words, "--seed", self.seed]

    @property
    def endpoint(self) -> list[object]:
        return ["--model", "stub", "--base-url", self.url, "--no-journal"]

    @property
    def wire(self) -> dict:
        return {"strategy": self.strategy, "set": self.settings, "seed": self.seed, "domain": "math"}

    def reply(self, body: dict, number: int = 0) -> Reply:
        if is_judge(body):
            return better_quality_wins(body)
        return Reply(self.texts[(body.get("seed", self.seed) - self.seed) % len(self.texts)])

    def cases(self) -> Path:
        path = self.folder / "cases.jsonl"
        path.write_text(json.dumps(self.row) + "\n")
        return path


def of_line(line: dict) -> dict:
    """What must not differ: the choice, what was merged, what was asked and what it cost."""
    tokens = {name: line["tokens"][name] for name in ("asked", "output")}
    return {"winner": line["winner"], "order": line["order"], "clusters": line["clusters"], "calls": line["calls"], **tokens}  # fmt: skip


def of_selected(selected: api.Selected) -> dict:
    total = selected.ledger.total()
    entrants = selected.contest.entrants
    return {
        "winner": selected.winner,
        "order": list(selected.order),
        "clusters": len({one.id if one.signature is None else one.signature for one in entrants}),
        "calls": selected.ledger.calls,
        "asked": total.asked,
        "output": total.output,
    }


def through_select(contest: Contest) -> dict:
    done = caps("select", contest.cases(), *contest.endpoint, *contest.options, "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    return of_line(json_lines(done)[0])


def through_solve(contest: Contest) -> dict:
    n = len(contest.candidates)
    words = ("-n", n, "--domain", "math", *contest.endpoint, *contest.options, "--json", "--quiet")
    done = caps("solve", QUESTION, *words)
    assert done.returncode == 0, done.stderr
    return of_line(json_lines(done)[0])


def chosen_strategy(contest: Contest) -> dict:
    return {"strategy": contest.strategy, "settings": contest.settings, "seed": contest.seed}


def through_api_select(contest: Contest) -> dict:
    case = parse_case(json.dumps(contest.row), default_id="1")
    where = {"model": "stub", "base_url": contest.url}
    return of_selected(api.select_sync(case, **where, **chosen_strategy(contest)))


def through_api_solve(contest: Contest) -> dict:
    where = {"model": "stub", "base_url": contest.url}
    n = len(contest.candidates)
    solved = api.solve_sync(QUESTION, domain="math", n=n, **where, **chosen_strategy(contest))
    return of_selected(solved.selected)


def through_server_select(contest: Contest) -> dict:
    async def ask(app):
        return await app("POST", "/v1/select", {**contest.row, "model": "caps/stub", "caps": contest.wire})

    answer = inside(contest.url, ask)
    assert answer.status == 200, answer.body
    return of_line(answer.json)


def through_chat(contest: Contest) -> dict:
    body = {
        "model": "caps/stub",
        "messages": [{"role": "user", "content": QUESTION}],
        "seed": contest.seed,
        "caps": {**contest.wire, "n": len(contest.candidates)},
    }

    async def ask(app):
        return await app("POST", "/v1/chat/completions", body)

    answer = inside(contest.url, ask)
    assert answer.status == 200, answer.body
    told, usage = answer.json["caps"], answer.json["usage"]["caps"]
    levels = {"E1": 0, "E2": 0}
    for stage in usage["stages"]:
        levels[stage["level"]] += stage["calls"]
    return {
        "winner": told["winner"],
        "order": told["order"],
        "clusters": told["clusters"],
        "calls": levels,
        "asked": usage["verifier"]["prompt_tokens"],
        "output": usage["verifier"]["completion_tokens"],
    }


def through_batch(contest: Contest) -> dict:
    folder = contest.folder / "batch"
    cases = contest.cases()
    done = to_the_end(
        lambda: select_in_batches(cases, folder, *contest.options),
        folder,
        lambda body, _: contest.reply(body),
    )
    return of_line(json.loads(done.stdout))


DOORS = {
    "select": through_select,
    "solve": through_solve,
    "api.select": through_api_select,
    "api.solve": through_api_solve,
    "/v1/select": through_server_select,
    "/v1/chat/completions": through_chat,
    "batch": through_batch,
}


def played(contest: Contest, folder: Path, door: str) -> dict:
    contest.folder = folder / door.replace("/", "_")
    contest.folder.mkdir(parents=True)
    with ScriptedEndpoint(contest.reply) as server:
        contest.url = server.url
        return DOORS[door](contest)


@pytest.mark.parametrize("strategy", ["posterior", "caps-r", "majority"])
@pytest.mark.parametrize("door", [door for door in DOORS if door != "select"])
def test_every_entry_point_chooses_as_caps_select_does(strategy, door, tmp_path):
    wanted = played(Contest(strategy=strategy), tmp_path, "select")
    assert played(Contest(strategy=strategy), tmp_path, door) == wanted


def contests() -> st.SearchStrategy[Contest]:
    answers = st.sampled_from(["2", "0.5", "1/2", r"\frac{1}{2}", "7", "x+1"])
    candidate = st.tuples(st.integers(1, 99).map(lambda n: n / 100), answers)
    cascade = st.fixed_dictionaries(
        {}, optional={"finalists": st.integers(1, 5), "rescue": st.sampled_from(["none", "paper"])}
    )
    chosen = st.one_of(
        st.tuples(st.sampled_from(["caps", "caps-r"]), cascade),
        st.tuples(
            st.sampled_from(["posterior", "sprint", "pointwise", "knockout", "tests-first", "v1-infer"]),
            st.just({}),
        ),
    )
    return st.builds(
        lambda candidates, chosen, seed: Contest(tuple(candidates), *chosen, seed=seed),
        st.lists(candidate, min_size=2, max_size=7),
        chosen,
        st.integers(0, 2**31),
    )


@settings(max_examples=4)
@given(contest=contests())
def test_random_settings_and_candidates_give_the_same_choice_everywhere(contest, tmp_path_factory):
    folder = tmp_path_factory.mktemp("doors")
    results = {door: played(contest, folder, door) for door in DOORS}
    assert all(result == results["select"] for result in results.values()), results


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning:ray")
def test_workers_of_a_cluster_choose_as_caps_select_does(tmp_path):
    contest = Contest()
    wanted = played(contest, tmp_path, "select")
    with ScriptedEndpoint(contest.reply) as server:
        contest.url = server.url
        words = (*contest.endpoint, *contest.options, "--engine ray --set ray_workers=1 --json --quiet")
        done = caps("select", contest.cases(), *words)
    assert done.returncode == 0, done.stderr
    assert of_line(json_lines(done)[0]) == wanted


@needs_bubblewrap
def test_programs_are_run_by_the_server_only_where_its_operator_allows_a_sandbox(tmp_path):
    programs = ("print(sum(map(int, input().split())))", "print(7)")
    row = {
        "domain": "code",
        "problem": "Print the sum of two numbers.",
        "tests": {"public": [{"input": "1 2\n", "output": "3\n"}]},
        "candidates": [
            f"quality=0.{place + 1}\n```python\n{text}\n```" for place, text in enumerate(programs)
        ],
        "model": "caps/stub",
        "caps": {"strategy": "caps-r", "skip_failing": True},
    }

    async def ask(app):
        return await app("POST", "/v1/select", row)

    with ScriptedEndpoint(Contest().reply) as server:
        never = inside(server.url, ask).json
        allowed = inside(server.url, ask, config_={"sandbox": "auto"}).json
    assert ("tests_passed" in never, never["winner"]) == (False, 1)
    assert (allowed["tests_passed"], allowed["winner"]) == ([1, 0], 0)


def test_every_judge_endpoint_is_connected_once_and_closed_once(tmp_path):
    CONNECTED.clear()
    run_cases(write_cases(tmp_path / "cases.jsonl", 1), tmp_path / "run")
    assert [model.closed for model in CONNECTED] == [1]
