"""Operating a server: probes, metrics with their dashboard, and what is spent by requests without an answer."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from caps.server.admission import Limits
from caps.testing import Hang, Pieces, Raw, Reply, ScriptedEndpoint, Status, asked, upstream
from support.pages import whole_text
from support.serving import inside, served
from support.shell import caps
from support.waiting import until

DEPLOY = Path(__file__).parents[2] / "deploy"


def metrics_of(page):
    """The value of each sample on a page of metrics, by name and labels."""
    lines = [line for line in page.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def measured(call):
    return metrics_of((await call("GET", "/metrics")).body)


def test_an_outage_of_the_upstream_makes_a_server_unready_and_leaves_it_alive():
    async def work(call):
        async def probes():
            return {path: (await call("GET", path)).status for path in ("/live", "/ready", "/health")}

        if call.app.state.service.upstream.address == stub.url:
            assert await probes() == {"/live": 200, "/ready": 200, "/health": 200}
        else:
            assert await probes() == {"/live": 200, "/ready": 503, "/health": 503}

    with ScriptedEndpoint(upstream) as stub:
        inside(stub.url, work, keys=("sk-1",), host="0.0.0.0")
    inside("http://127.0.0.1:9/v1", work, keys=("sk-1",), host="0.0.0.0")


def test_every_metric_of_the_dashboard_is_exported():
    async def work(call):
        await call(
            path="/v1/select",
            body={"model": "caps/m", "problem": "?", "candidates": ["quality=0.1", "quality=0.3"]},
        )
        return set(await measured(call)) | set(
            re.findall(r"^# HELP (\S+)", (await call("GET", "/metrics")).body.decode(), re.MULTILINE)
        )

    with ScriptedEndpoint(upstream) as stub:
        exported = {name.partition("{")[0] for name in inside(stub.url, work)}
    board = json.loads((DEPLOY / "grafana.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    named = {name for query in queries for name in re.findall(r"caps_\w+", query)}
    assert named <= exported
    ours = {
        re.sub(r"_(total|bucket|count|sum|created)$", "", name)
        for name in exported
        if name.startswith("caps_")
    }
    shown = {re.sub(r"_(total|bucket|count)$", "", name) for name in named}
    assert ours - shown == set(), "the dashboard leaves out a metric"
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)


async def test_probability_queue_time_latency_and_errors_are_measured():
    def sometimes(body, number):
        return Raw(b"no JSON") if number == 0 else upstream(body, number)

    async with ScriptedEndpoint(sometimes) as stub, served(stub.url) as call:
        body = {"model": "caps/m", "problem": "?", "candidates": ["quality=0.1", "quality=0.3"]}
        selected = (await call(path="/v1/select", body=body)).json
        await call(body=asked(caps={"n": 2}))
        found = await measured(call)
    assert found["caps_probability_sum"] >= selected["probability"] > 0
    assert found['caps_queue_seconds_count{queue="request"}'] == 2
    assert found['caps_upstream_errors_total{cause="garbled"}'] == 1
    assert found['caps_upstream_seconds_count{part="generation"}'] == 2
    assert found['caps_queue_seconds_count{queue="connection"}'] == stub.requests - 1, (
        "a retry keeps its place"
    )


async def test_a_client_that_leaves_is_counted_with_all_that_was_spent_for_it():
    def half(_, number):
        return Reply("an answer of some tokens") if number < 2 else Hang()

    async with ScriptedEndpoint(half) as stub, served(stub.url) as call:
        leaves = asyncio.Event()
        visit = asyncio.ensure_future(call(body=asked(caps={"n": 4}), leaves=leaves))
        await until(lambda: stub.requests == 4)
        while (await measured(call)).get('caps_calls_total{part="generation"}') != 2:
            await asyncio.sleep(0)
        leaves.set()
        await visit
        found, line = await measured(call), json.loads(call.log.getvalue().splitlines()[-2])
    assert line["status"] == 499
    reported = found['caps_tokens_total{kind="prompt",part="generation"}']
    estimated = found['caps_tokens_estimated_total{kind="prompt",part="generation"}']
    assert reported == stub.tokens["prompt"], "calls under way are estimated apart"
    assert estimated > 0
    assert found['caps_calls_total{part="generation"}'] == 2
    assert found['caps_calls_estimated_total{part="generation"}'] == 2
    assert (
        found['caps_abandoned_tokens_total{kind="prompt"}'] == reported + estimated == line["prompt_tokens"]
    )


@pytest.mark.parametrize("leaves_early", [False, True])
async def test_forwarded_requests_are_counted(leaves_early):
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3}}
    parts = [
        b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n',
        b'data: {"choices": [], "usage": ' + json.dumps(usage).encode() + b"}\n\ndata: [DONE]\n\n",
    ]
    go_on = asyncio.Event()

    async with ScriptedEndpoint([Pieces(parts, go_on.is_set)]) as stub, served(stub.url) as call:
        leaves = asyncio.Event()

        def received(body):
            (leaves if leaves_early else go_on).set()

        await call(body=asked(model="m", stream=True), leaves=leaves, on_body=received)
        go_on.set()
        found, line = await measured(call), json.loads(call.log.getvalue().splitlines()[0])
    estimated = "_estimated" if leaves_early else ""
    counted = [
        found[f'caps_tokens{estimated}_total{{kind="{kind}",part="forwarded"}}']
        for kind in ("prompt", "completion", "cached")
    ]
    assert found[f'caps_calls{estimated}_total{{part="forwarded"}}'] == 1
    assert line["prompt_tokens"] == counted[0]
    if leaves_early:
        assert counted[0] > 0
        assert counted[1:] == [1, 0], "one event was sent"
    else:
        assert counted == [11, 7, 3]


async def test_the_samples_of_the_first_request_go_out_at_once_and_fewer_after_an_overload():
    def held(_, number):
        if 12 <= number < 24:
            return Status(429, headers={"Retry-After": "0"})
        return Reply("It is 4.", until=lambda: number >= 12 or stub.requests >= 12)

    async with ScriptedEndpoint(held) as stub, served(stub.url) as call:
        body = asked("same", caps={"n": 12, "seconds": 60})
        gate = call.app.state.service.upstream
        before = gate.connections
        await call(body=body)
        together, grown = stub.peak, gate.connections
        await call(body=body)
        after = gate.connections
    assert before < 12, "the limit is otherwise found by trying"
    assert together == grown == 12
    assert after < 12


async def test_kept_runs_can_be_shown_are_bounded_and_hold_no_key(tmp_path):
    (tmp_path / "notes").mkdir()

    async with (
        ScriptedEndpoint(upstream) as stub,
        served(stub.url, key="sk-upstream-key", keep=tmp_path, limits=Limits(keep_last=2)) as call,
    ):
        await call(body=asked(caps={"n": 3}))
        body = {"model": "caps/m", "problem": "secret?", "candidates": ["quality=0.1", "quality=0.3"]}
        await call(path="/v1/select", body=body)
        answer = await call(body=asked("vary", caps={"n": 4}))
    run = answer.headers["x-caps-run-id"]
    runs = {one.name for one in tmp_path.iterdir()} - {"notes"}
    assert len(runs) == 2
    assert run in runs
    assert (tmp_path / run).stat().st_mode & 0o077 == 0
    files = {file: file.read_bytes() for name in runs for file in (tmp_path / name).iterdir()}
    assert not [file for file, content in files.items() if b"sk-upstream-key" in content]
    shown = caps("report", tmp_path / run)
    assert shown.returncode == 0, shown.stderr
    assert "quality=0.1" in whole_text(tmp_path / run / "report.html")
    line = json.loads((tmp_path / run / "selections.jsonl").read_text())
    assert line["text"] == answer.json["choices"][0]["message"]["content"]
