"""Authentication, limits and errors: every request ends in an answer or an error object, never in a traceback."""

import asyncio
import json
import random
import string
import subprocess
import sys
import threading
from io import StringIO

import pytest

from caps.config import RunConfig
from caps.core.errors import SettingError
from caps.core.types import Case
from caps.models.endpoints import Endpoint
from caps.server.admission import Limits
from caps.server.app import ServerConfig, create_app
from caps.server.telemetry import JsonLog
from caps.session.parts import load_templates, make_prepare, make_strategy
from caps.session.resolve import resolve
from caps.studies.planning import forecast_case
from caps.testing import Hang, Raw, Reply, ScriptedEndpoint, Status, asked, upstream
from support.serving import Inside, inside, served
from support.waiting import skip, until

KEYS = ("sk-first-0001", "sk-second-0002")


@pytest.fixture(scope="module")
def stub():
    with ScriptedEndpoint(upstream, models=("m",)) as running:
        yield running


def bearer(key):
    return {"authorization": f"Bearer {key}"}


async def test_a_key_is_read_from_its_header_only(stub):
    async with served(stub.url, keys=KEYS, host="0.0.0.0") as call:
        body = asked(caps={"n": 1})
        *answers, log = [
            await call(body=body, **bearer(KEYS[0])),
            await call(body=body, **bearer(KEYS[1])),
            await call(body=body),
            await call(body=body, **bearer("sk-wrong")),
            await call(body=body, **bearer("")),
            await call(body=body, authorization=KEYS[0]),
            await call(body=body, authorization=f"Basic {KEYS[0]}"),
            await call(path=f"/v1/chat/completions?api_key={KEYS[0]}", body=body),
            await call(body={**body, "api_key": KEYS[0]}, x_api_key=KEYS[0]),
            await call("GET", "/metrics"),
            await call("GET", "/health"),
            await call("GET", "/health", **bearer(KEYS[1])),
            call.log.getvalue(),
        ]
    assert [one.status for one in answers] == [200, 200, *[401] * 8, 200, 200]
    assert answers[3].json["error"]["code"] == "invalid_api_key"
    assert answers[-2].json == {"status": "ok"}
    assert answers[-1].json["upstream"]["state"] == "serving"
    assert "sk-" not in log + "".join(one.body.decode() for one in answers)


def test_a_server_for_other_machines_needs_keys_or_an_explicit_option(stub):
    async def work(call):
        return (await call(body=asked(caps={"n": 1}), host="evil.example")).status

    with pytest.raises(SettingError, match="--host 0.0.0.0"):
        inside(stub.url, work, host="0.0.0.0")
    assert inside(stub.url, work, host="0.0.0.0", allow_anyone=True) == 200
    assert inside(stub.url, work) == 403, "a page that points its own name at this machine"
    with pytest.raises(SettingError, match="control character"):
        inside(stub.url, work, keys=("a\nb",))


async def test_limits_have_statuses(stub):
    limits = Limits(max_body=2000, max_samples=4, body_seconds=60)

    async with served(stub.url, limits=limits) as call:
        answers = [
            await call(body=asked("x" * 3000)),
            await call(body=asked(), content_length="1" + "0" * 12),
            await call(body=asked(), content_type="text/plain"),
            await call(body=asked(), content_type=""),
            await call(body=asked(caps={"n": 5})),
            await call(body=asked(n=5)),
            await call("GET"),
            await call("DELETE", "/v1/models"),
            await call(path="/v1/select", body={"problem": "?", "candidates": ["a"] * 5, "model": "caps/m"}),
            await call(path="/v1/embeddings", body={"model": "caps/m", "input": "x"}),
        ]
    assert [one.status for one in answers] == [413, 413, 415, 415, 400, 400, 405, 405, 400, 400]
    assert all(set(one.json["error"]) == {"message", "type", "param", "code"} for one in answers)
    assert all(len(one.headers["x-caps-run-id"]) == 32 for one in answers)


async def test_a_wrong_method_is_answered_with_the_right_ones(stub):
    async with served(stub.url) as call:
        chat, model, health = (
            await call("GET"),
            await call("DELETE", "/v1/models/m"),
            await call("HEAD", "/health"),
        )
    assert (chat.status, chat.headers["allow"]) == (405, "POST")
    assert (model.status, model.headers["allow"]) == (405, "GET, HEAD")
    assert "/v1/models/{name:path}" in model.json["error"]["message"]
    assert health.status == 200


async def test_all_bodies_together_have_a_limit_and_count_until_they_are_answered():
    go = threading.Event()
    body = json.dumps(asked(caps={"n": 1})).encode()

    async with (
        ScriptedEndpoint([Reply("same", until=go.is_set)]) as stub,
        served(stub.url, limits=Limits(max_held=len(body) * 3 // 2)) as call,
    ):
        first = asyncio.ensure_future(call(body=body))
        await until(lambda: stub.busy == 1)
        refused = await call(body=body)
        go.set()
        answers = [await first, refused, await call(body=body)]
    assert [answer.status for answer in answers] == [200, 503, 200]
    assert (refused.json["error"]["code"], refused.headers["retry-after"]) == ("too_busy", "1")


async def test_the_app_runs_under_any_server_that_speaks_the_lifespan_protocol(stub):
    config = RunConfig(base_url=(stub.url,), samples=2, sandbox="off")
    app = create_app(ServerConfig(resolved=resolve(config, any_model=True), log=JsonLog(file=StringIO())))
    events, sent = asyncio.Queue(), []

    async def send(message):
        sent.append(message["type"])

    events.put_nowait({"type": "lifespan.startup"})
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
    life = asyncio.ensure_future(app(scope, events.get, send))
    await until(lambda: sent)
    answer = await Inside(app, StringIO())(body=asked())
    events.put_nowait({"type": "lifespan.shutdown"})
    await life
    assert answer.status == 200
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_without_starlette_the_error_names_the_extra():
    code = "import sys; sys.modules['starlette'] = None; import caps.server.app"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtraError" in done.stderr
    assert "[server]" in done.stderr


@pytest.mark.parametrize(
    "path",
    ["//", "//v1/models", "/v1/models/", "/v1/../health", "/v1/%2e%2e/metrics", "/v1/chat/completions/", "/V1/models",
     "/health/", "/health/../metrics", "/v1/models/../../metrics", "/v1/models\x00", "/v1/completions\r\nx: y"],
)  # fmt: skip
async def test_manipulated_paths_are_not_found(stub, path):
    async with served(stub.url, keys=KEYS) as call:
        without, with_key = await call("GET", path), await call("GET", path, **bearer(KEYS[0]))
    assert without.status == 401
    assert with_key.status in (404, 405)
    assert with_key.json["error"]["code"] in ("not_found", "model_not_found", "method_not_allowed")


async def test_requests_beyond_the_queue_are_rejected_and_the_others_answered():
    go = threading.Event()

    with ScriptedEndpoint([Reply("same", until=go.is_set)]) as stub:
        async with served(stub.url, limits=Limits(max_concurrent=2, max_waiting=2)) as call:
            visits = [asyncio.ensure_future(call(body=asked(caps={"n": 1}))) for _ in range(6)]
            await until(lambda: sum(visit.done() for visit in visits) == 2)
            go.set()
            answers = await asyncio.gather(*visits)
        assert sorted(one.status for one in answers) == [200, 200, 200, 200, 429, 429]
        assert {one.headers.get("retry-after") for one in answers} == {None, "1"}
        assert stub.requests == 4


async def test_requests_that_wait_beyond_their_time_limit_are_rejected():
    async with (
        ScriptedEndpoint([Reply("same"), Hang()]) as stub,
        served(stub.url, limits=Limits(max_concurrent=1, max_seconds=100)) as call,
    ):
        requests = [asyncio.ensure_future(call(body=asked(caps={"n": 1}))) for _ in range(4)]
        await until(lambda: stub.requests == 2)
        skip(100)
        late = await asyncio.gather(*requests)
    assert {200, 503} <= {one.status for one in late} <= {200, 503, 504}


@pytest.mark.parametrize(
    ("behaviour", "status", "code"),
    [
        (Status(401, {"error": {"message": "bad key sk-upstream"}}), 502, "upstream_access"),
        (Status(404, {"error": {"message": "The model `m` does not exist"}}), 404, "model_not_found"),
        (Status(400, {"error": {"message": "context length is 10 tokens"}}), 400, "context_length_exceeded"),
        (Status(422, {"error": {"message": "no such tool"}}), 400, "upstream_refused"),
        (Reply(None), 502, "upstream_empty"),
        (Hang(), 504, "timeout"),
    ],
)
async def test_errors_of_the_upstream_are_reported_without_its_address(behaviour, status, code):
    with ScriptedEndpoint([behaviour]) as stub:
        async with served(
            stub.url, limits=Limits(max_seconds=0.3) if code == "timeout" else Limits()
        ) as call:
            plain = await call(body=asked(caps={"n": 2}))
            stream = await call(body=asked(stream=True, caps={"n": 2}))
            answers = plain, stream
        address = stub.url.partition("//")[2].partition("/")[0]
    for one in answers:
        assert (one.status, one.json["error"]["code"]) == (status, code)
        assert address not in one.body.decode()
        assert "sk-upstream" not in one.body.decode()


async def test_an_unreachable_upstream_is_reported(stub):
    async with served("http://127.0.0.1:9/v1") as call:
        answers = [
            await call(body=asked(caps={"n": 2})),
            await call(body=asked(model="other")),
            await call("GET", "/v1/models"),
            await call("GET", "/health"),
        ]
    assert [one.status for one in answers] == [502, 502, 502, 503]
    assert answers[3].json["upstream"]["state"] == "silent"


async def test_an_error_after_the_first_heartbeat_is_an_event():
    received = []

    async with (
        ScriptedEndpoint([Status(400, {"error": {"message": "no"}}, until=lambda: received)]) as stub,
        served(stub.url, limits=Limits(heartbeat=0.05)) as call,
    ):
        answer = await call(body=asked(stream=True, caps={"n": 1}), on_body=received.append)
    events = [part for part in answer.body.decode().split("\n\n") if part.startswith("data: ")]
    assert answer.status == 200
    assert json.loads(events[-1].removeprefix("data: "))["error"]["code"] == "upstream_refused"


async def test_a_client_that_disconnects_ends_the_work_upstream():
    async with (
        ScriptedEndpoint([Hang()]) as stub,
        served(stub.url, config_={"max_connections": 32}, limits=Limits(heartbeat=0.05)) as call,
    ):
        leaves = asyncio.Event()
        visits = [
            asyncio.ensure_future(
                call(path=f"/v1/{path}", body=asked(caps={"n": 4}, stream=stream, **more), leaves=leaves)
            )
            for path, more in (
                ("chat/completions", {}),
                ("messages", {"max_tokens": 9}),
                ("responses", {"input": "?"}),
            )
            for stream in (False, True)
        ]
        await until(lambda: stub.busy == 24)
        leaves.set()
        await asyncio.gather(*visits)
        await until(lambda: stub.busy == 0)
        assert [json.loads(line)["status"] for line in call.log.getvalue().splitlines()] == [499] * 6


async def test_logs_contain_no_prompts_and_metrics_count_requests(stub):
    async with served(stub.url) as call:
        body = asked(caps={"n": 3, "strategy": "round-robin"})
        body["messages"].insert(0, {"role": "system", "content": "my secret plan"})
        await call(body=body)
        log, page = call.log.getvalue(), (await call("GET", "/metrics")).body.decode()
    line = json.loads(log)
    assert (line["status"], line["samples"], line["judge_calls"], line["model"]) == (200, 3, 3, "m")
    assert "secret" not in log
    assert "boxed" not in log
    assert 'caps_requests_total{route="/v1/chat/completions",status="200"} 1.0' in page
    assert 'caps_calls_total{part="generation"} 3.0' in page
    assert f'caps_tokens_total{{kind="prompt",part="generation"}} {3 * (4 + 1)}.0' in page
    assert "secret" not in page


async def test_prompts_and_answers_are_logged_on_request(stub):
    async with served(stub.url, prompts=True) as call:
        await call(body=asked("my secret plan", caps={"n": 1}))
        line = json.loads(call.log.getvalue().splitlines()[0])
    assert (line["event"], line["messages"][0]["content"]) == ("content", "my secret plan")
    assert line["choices"][0]["content"] == "It is 4."


async def test_another_server_may_judge_without_seeing_the_key_of_the_first(stub):
    with ScriptedEndpoint(upstream) as other:
        async with served(stub.url, key="sk-writer", judge=Endpoint(other.url, "strict", "sk-judge")) as call:
            answer = await call(body=asked(caps={"n": 3}))
        assert {body["model"] for body in other.bodies} == {"strict"}
        assert {head["Authorization"] for head in other.headers} == {"Bearer sk-judge"}
        assert other.requests == answer.json["usage"]["caps"]["verifier"]["calls"] > 0


async def test_the_description_names_every_route_and_the_limits(stub):
    async with served(stub.url, limits=Limits(max_samples=9)) as call:
        description = (await call("GET", "/openapi.json")).json
    assert description["openapi"].startswith("3.")
    options = description["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"][
        "application/json"
    ]
    assert options["schema"]["properties"]["caps"]["properties"]["n"]["maximum"] == 9
    named = {"/v1/select", "/v1/models", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"}
    assert {*named, "/health", "/metrics"} < set(description["paths"])


def junk(rng, depth=0):
    """Any JSON value, the strange ones often."""
    odd = [None, True, -1, 0, 1, 2**70, 1e308, "", "\x00", "\ud83d\ude00", "caps/m", [], {}, "vary", 3.5]
    if depth > 3 or rng.random() < 0.5:
        return rng.choice(odd)
    if rng.random() < 0.5:
        return [junk(rng, depth + 1) for _ in range(rng.randrange(4))]
    names = ["role", "content", "text", "type", "tool_calls", "function", "name", "arguments", "user", "n"]
    return {rng.choice(names): junk(rng, depth + 1) for _ in range(rng.randrange(4))}


def malformed(rng):
    """A body that is wrong in some way: fields of another kind, cut off, of other bytes, or no JSON at all."""
    body = asked(rng.choice(["vary", "same"]), rng.choice(["caps/m", "caps", "caps/", "m", "caps/m"]))
    body["caps"] = {"n": 1}
    if rng.random() < 0.3:
        body |= {"query": "?", "documents": ["a", "b"], "top_n": 1}
    fields = [
        "query", "documents", "top_n", "return_documents", "model", "messages", "n", "stream",
        "stream_options", "caps", "tools", "response_format", "seed",
    ]  # fmt: skip
    for name in rng.sample(fields, rng.randrange(1, 4)):
        body[name] = junk(rng)
    if isinstance(body["caps"], dict):
        inner = ["n", "strategy", "set", "domain", "seed", "seconds", "budget_tokens", "x"]
        body["caps"] |= {name: junk(rng) for name in rng.sample(inner, rng.randrange(3))}
    payload = json.dumps(body).encode()
    way = rng.randrange(6)
    if way == 0:
        return payload[: rng.randrange(len(payload))]
    if way == 1:
        return bytes(rng.randrange(256) for _ in range(rng.randrange(40)))
    if way == 2:
        spot = rng.randrange(len(payload))
        return payload[:spot] + rng.choice(string.printable).encode() + payload[spot + 1 :]
    return payload


async def test_no_body_causes_a_500():
    rng = random.Random(11)
    seen = set()

    reply = json.dumps({"choices": [{"message": {"content": "same"}}]}).encode()
    async with (
        ScriptedEndpoint([Raw(reply)]) as stub,
        served(stub.url, model="m", config_={"keep_going": True}) as call,
    ):
        for _ in range(2000):
            payload = malformed(rng)
            path = rng.choice(["/v1/chat/completions"] * 3 + ["/v1/select", "/v1/embeddings"])
            answer = await call(path=path, body=payload)
            seen.add(answer.status)
            assert answer.status < 500, (path, payload, answer.body, call.log.getvalue()[-400:])
            assert answer.status in (200, 404) or set(answer.json) == {"error"}, payload
    assert {200, 400} <= seen


async def test_a_case_comes_back_with_the_order_and_the_probability_of_every_candidate(stub):
    candidates = ["quality=0.20 \\boxed{1}", "quality=0.90 \\boxed{2}", "quality=0.50 \\boxed{3}"]
    large = [*candidates, "quality=0.10 " + "x" * 100_000]

    async with served(stub.url) as call:
        bodies = [
            {"candidates": candidates},
            {"candidates": large},
            {"candidates": candidates, "caps": {"strategy": "caps-r"}},
        ]
        answers = [
            await call(path="/v1/select", body={"model": "caps/m", "problem": "vary?", **body})
            for body in bodies
        ]
    assert [answer.status for answer in answers] == [200] * 3, answers[0].body
    small, long, other = [answer.json for answer in answers]
    assert (small["order"], long["order"][:3], other["order"]) == ([1, 2, 0],) * 3
    scores = [small["scores"][place] for place in small["order"]]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score < 1 for score in scores)
    assert small["score_kind"] == "probability" != other["score_kind"]
    assert small["probability"] == pytest.approx(scores[0], abs=1e-4)
    assert answers[0].headers["x-caps-probability"] == str(small["probability"])


async def test_a_dry_run_of_a_case_asks_nothing_and_states_the_forecast_of_the_plan(stub):
    texts = [f"quality=0.{place} \\boxed{{{place}}}" for place in range(1, 9)]
    case = Case.of("vary?", texts, domain="math", name="1")
    body = {
        "model": "caps/m",
        "id": "1",
        "domain": "math",
        "problem": "vary?",
        "candidates": texts,
        "dry_run": True,
    }

    before = stub.requests
    async with served(stub.url) as call:
        answer, wrong = (
            await call(path="/v1/select", body=body),
            await call(path="/v1/select", body={**body, "dry_run": 1}),
        )
    assert stub.requests == before
    strategy, seed = make_strategy("posterior"), RunConfig().seed
    forecast = forecast_case(make_prepare()(case), strategy, load_templates(), seed=seed)
    assert answer.json == {"id": "1", "strategy": "posterior", **forecast.as_line()}
    assert (wrong.status, wrong.json["error"]["param"]) == (400, "dry_run")


def test_a_case_without_usable_fields_is_refused_with_the_field_that_is_wrong(stub):
    wrong = [
        ({"candidates": ["a", "b"]}, "problem"),
        ({"problem": "?"}, "candidates"),
        ({"problem": "?", "candidates": []}, "candidates: is empty"),
        ({"problem": "?", "candidates": [1]}, "candidates[0]"),
        ({"problem": 3, "candidates": ["a", "b"]}, "problem: must be"),
        ({"problem": "?", "candidates": ["a", "b"], "model": "caps"}, "names no model"),
    ]

    async def work(call):
        return [await call(path="/v1/select", body={"model": "caps/m", **body}) for body, _ in wrong]

    for answer, (body, message) in zip(inside(stub.url, work), wrong, strict=True):
        assert answer.status == 400, body
        assert message in answer.json["error"]["message"], body


async def test_a_case_that_names_files_or_commands_of_the_machine_is_refused(stub):
    named = {"repository": "shop", "commit": "abc", "test_command": "make", "environment": ".venv"}

    async with served(stub.url) as call:
        for size in (1, 100_000):  # a large body is parsed in a worker process
            for name, value in named.items():
                candidates = ["--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n" + " " * size] * 2
                body = {
                    "problem": "?",
                    "domain": "patch",
                    "candidates": candidates,
                    "model": "caps/m",
                    name: value,
                }
                answer = await call(path="/v1/select", body=body)
                assert answer.status == 400, (name, size)
                assert f"{name}: a client may not name files or commands" in json.dumps(answer.json)
