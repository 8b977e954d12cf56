"""Secrets: whatever an endpoint repeats, in the usual encodings, no artefact of a run has it."""

import asyncio
import base64
import json
import sqlite3
import urllib.parse
import zlib
from http.client import HTTPConnection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caps.core.errors import AccessError, ModelError, SettingError
from caps.core.secrets import (
    MASK,
    Secrets,
    StreamScrubber,
    looks_secret,
    recorded_extra,
    shown_address,
    unrecorded,
)
from caps.core.types import Message
from caps.journal.records import request_key
from caps.models.base import ConnectOptions, Request
from caps.models.batch import BatchApi
from caps.models.endpoints import Endpoint, ServerAddress, discover
from caps.models.faults import Retries
from caps.models.http import HttpModel
from caps.models.servers import ServersModel
from caps.testing import Reply, ScriptedEndpoint, asked, better_quality_wins, running, write_cases
from support.batching import BatchServer, answer_files
from support.closing import closing
from support.raw_endpoint import OK, RawEndpoint, always, answer, chat, chunk
from support.serving import inside, served
from support.shell import caps, json_lines

KEY = "sk-Very/Secret+Key=0123456789abc"
QUERY, EXTRA, NESTED, PASSWORD = (
    "query-S3cret-4711",
    "extra-S3cret-4712",
    "nested-S3cret-4713",
    "pass-S3cret-4714",
)
ALL = (KEY, QUERY, EXTRA, NESTED, PASSWORD)
FOUND = Secrets([KEY])
ONCE = Retries(most=0, loading=0.0, most_unknown=0)


def encodings(key):
    """The ways in which servers, proxies and log shippers write what they were sent."""
    raw = key.encode()
    return {
        "plain": raw,
        "JSON": json.dumps(key).encode(),
        "JSON with escaped slashes": json.dumps(key).replace("/", "\\/").encode(),
        "JSON, every character escaped": "".join(f"\\u{ord(one):04x}" for one in key).encode(),
        "JSON, half escaped": "".join(
            f"\\u{ord(one):04X}" if n % 2 else one for n, one in enumerate(key)
        ).encode(),
        "JSON inside JSON": json.dumps(
            json.dumps({"k": "".join(f"\\u{ord(one):04x}" for one in key)})
        ).encode(),
        "percent": urllib.parse.quote(key, safe="").encode(),
        "percent, every character": "".join(f"%{one:02x}" for one in raw).encode(),
        "percent twice": urllib.parse.quote(urllib.parse.quote(key, safe=""), safe="").encode(),
        "base64": base64.b64encode(raw),
        "base64 of a header": base64.b64encode(b"Authorization: Bearer " + raw + b"\r\n"),
        "base64 of a user": base64.b64encode(b"me:" + raw),
        "base64 for addresses": base64.urlsafe_b64encode(b"x:" + raw),
        "base64, percent": urllib.parse.quote(base64.b64encode(raw), safe="").encode(),
        "UTF-16": key.encode("utf-16"),
        "UTF-16 big-endian": key.encode("utf-16-be"),
        "UTF-32": key.encode("utf-32"),
        "UTF-32 big-endian": key.encode("utf-32-be"),
    }


NAMES = list(encodings(KEY))


def leaks(payload, secrets=ALL):
    """The secrets that stand in bytes in any encoding."""
    return [one for one in secrets for form in encodings(one).values() if form in payload]


@pytest.mark.parametrize(
    "key", [KEY, "pässwörd-12", 'quo"te\\back-99', "sk-proj-abcdefghijklmnop", "a&b<c>d'e-77"]
)
def test_every_encoding_of_a_key_is_found(key):
    secrets = Secrets([key])
    for name, form in encodings(key).items():
        scrubbed = secrets.scrub(b"before " + form + b" after")
        assert MASK.encode() in scrubbed.replace(b"\0", b""), name  # the mask is encoded as what is around it
        assert form not in scrubbed, name
        assert scrubbed.startswith(b"before "), name


@given(st.text(st.characters(codec="utf-8", exclude_characters="sS*"), max_size=200))
def test_a_text_without_the_key_stays_as_it_is(text):
    assert Secrets([KEY]).scrub_text(text) == text


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.sampled_from(NAMES), st.lists(st.integers(1, 40), max_size=12))
def test_a_key_across_the_parts_of_a_stream_is_found(seed, name, cuts):
    form = encodings(KEY)[name]
    body = b"x" * (seed % 700) + form + b"y" * (seed % 301)
    scrubber, out, rest = StreamScrubber(FOUND), b"", body
    for cut in cuts:
        out += scrubber.feed(rest[:cut])
        rest = rest[cut:]
    out += scrubber.feed(rest) + scrubber.end()
    assert form not in out
    assert MASK.encode() in out.replace(b"\0", b"")
    assert out.count(b"y") >= seed % 301


def test_the_search_takes_time_in_proportion_to_the_text():
    secrets = Secrets([KEY])
    for part in (b"\\", b"%25", b"\0", b"sk-Very/", b"\\u0073", KEY.encode()[:-1]):
        body = part * (200_000 // len(part)) + b"\\u0073"
        assert MASK.encode() not in secrets.scrub(body)


def test_a_key_that_is_a_word_is_taken_out_of_errors_but_not_out_of_answers():
    assert not any(map(looks_secret, ("EMPTY", "none", "ollama", "password", "undefined")))
    assert all(map(looks_secret, ALL))
    with ScriptedEndpoint([Reply("The list is EMPTY.")]) as server:
        assert complete(server.url, "EMPTY").text == "The list is EMPTY."
    with pytest.raises(AccessError) as caught, ScriptedEndpoint([Reply()], api_key="other") as server:
        complete(server.url, "EMPTY")
    assert "EMPTY" not in str(caught.value)


def complete(url, key, **more):
    async def run():
        async with closing(HttpModel(url, key, retries=ONCE, **more)) as model:
            return await model.complete(Request((Message("user", "?"),), "m"))

    return asyncio.run(run())


# --- what an endpoint repeats -----------------------------------------------------------------------------


def said(form, status):
    """A reply that repeats a key, as JSON where that is possible."""
    head = b"HTTP/1.1 %d Said\r\n" % status
    if status == 200:
        message = (
            b'{"role": "assistant", "content": "It is '
            + quoted(form)
            + b'", "reasoning": "'
            + quoted(form)
            + b'"}'
        )
        return answer(
            b'{"choices": [{"message": %b, "finish_reason": "%b"}], "model": "%b"}'
            % ((message,) + 2 * (quoted(form),)),
            head=head,
        )
    return answer(
        b'{"error": {"message": "no: ' + quoted(form) + b'", "code": "' + quoted(form) + b'"}}', head=head
    )


def quoted(form):
    """Bytes inside the quotes of JSON; what is JSON already stays so."""
    text = form.decode("latin-1").strip('"')
    return text.encode("latin-1") if "\\" in text else json.dumps(text)[1:-1].encode()


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 429, 500])
def test_no_error_and_no_reply_has_the_key_in_any_encoding(status):
    for name, form in encodings(KEY).items():
        with RawEndpoint(always(lambda form=form: said(form, status))) as endpoint:
            try:
                words = repr(complete(endpoint.url, KEY))
            except ModelError as error:
                words = str(error)
        assert not leaks(words.encode()), name
        assert form.decode("utf-8", "replace").strip('"') not in words, name


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be", "latin-1"]
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_body_in_another_encoding_or_packed_is_decoded_before_it_is_searched(encoding, packed):
    escaped = "".join(f"\\u{ord(one):04x}" for one in KEY)
    body = f'{{"error": {{"message": "Incorrect API key: {KEY} {escaped}"}}}}'.encode(encoding)
    head = b"HTTP/1.1 401 No\r\n" + (b"Content-Encoding: deflate\r\n" if packed else b"")
    sent = answer(zlib.compress(body) if packed else body, head=head)
    with RawEndpoint(always(lambda: sent)) as endpoint, pytest.raises(AccessError) as caught:
        complete(endpoint.url, KEY)
    assert "Incorrect API key" in str(caught.value)
    assert not leaks(str(caught.value).encode())


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_a_reply_in_another_encoding_is_read_without_the_key(encoding):
    body = chat(f"It is {KEY}.").decode().encode(encoding)
    with RawEndpoint(always(lambda: answer(body))) as endpoint:
        assert complete(endpoint.url, KEY).text == f"It is {MASK}."


def test_a_key_at_the_place_where_a_quote_is_cut_leaves_no_part_of_itself():
    for before in range(250, 300, 7):
        body = json.dumps({"error": {"message": "x" * before + KEY}}).encode()
        sent = answer(body, head=b"HTTP/1.1 401 No\r\n")
        with RawEndpoint(always(lambda sent=sent: sent)) as endpoint, pytest.raises(AccessError) as caught:
            complete(endpoint.url, KEY)
        assert "sk-V" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "key", "secret"),
    [
        ("http://me:{s}@127.0.0.1:{port}/v1", None, PASSWORD),
        ("http://{s}@127.0.0.1:{port}/v1", None, PASSWORD),
        ("http://127.0.0.1:{port}/v1?api-key={s}", KEY, QUERY),
        ("http://127.0.0.1:{port}/v1?{s}", KEY, QUERY),
    ],
)
def test_a_credential_of_the_address_is_a_secret_too(address, key, secret):
    repeated = base64.b64encode(f"me:{secret}".encode()) + b" " + secret.encode()
    for status in (200, 401):
        with RawEndpoint(always(lambda status=status: said(repeated, status))) as endpoint:
            url = address.format(s=secret, port=endpoint.port)
            try:
                words = repr(complete(url, key))
            except AccessError as error:
                words = str(error)
            shown = [
                HttpModel(url, key),
                Endpoint(url, "m", key),
                ConnectOptions(address=url, model="m"),
                ServersModel([url], key),
                ServerAddress("x", url),
            ]
            assert secret not in repr(shown)
        assert not leaks(words.encode())


def test_extra_headers_are_secrets():
    secret = "header-S3cret-4715"
    with (
        RawEndpoint(always(lambda: said(secret.encode(), 401))) as endpoint,
        pytest.raises(AccessError) as caught,
    ):
        complete(endpoint.url, None, headers={"X-Api-Key": secret})
    assert secret not in str(caught.value)


def test_a_user_in_the_address_and_a_key_are_refused_in_a_sentence(tmp_path):
    url = f"http://me:{PASSWORD}@127.0.0.1:1/v1"
    with pytest.raises(SettingError, match="leave one out"):
        HttpModel(url, KEY)
    with pytest.raises(SettingError, match="leave one out"):
        HttpModel(url, headers={"authorization": "Basic x"})
    cases = write_cases(tmp_path / "cases.jsonl", 1, n=2)
    done = caps("select", cases, "--model", "m", "--base-url", url, CAPS_API_KEY=KEY)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "leave one out" in done.stderr
    assert not leaks((done.stdout + done.stderr).encode())
    (found,) = asyncio.run(discover([ServerAddress("given", url, KEY)], seconds=30))
    assert found.state == "strange"
    assert not leaks(repr(found).encode())


def test_a_user_in_the_address_is_sent_without_a_key():
    with RawEndpoint(always(lambda: answer(chat()))) as endpoint:
        complete(f"http://me:{PASSWORD}@127.0.0.1:{endpoint.port}/v1", None)
        assert b"Authorization: Basic " + base64.b64encode(f"me:{PASSWORD}".encode()) in endpoint.heads[0]


@pytest.mark.parametrize(
    "address",
    [
        f"htp://me:{PASSWORD}@host/v1?key={QUERY}",
        f"http://?key={QUERY}",
        f"me:{PASSWORD}@host",
        f"http://host:x/v1?key={QUERY}",
    ],
)
def test_an_address_that_is_none_is_refused_without_its_secrets(address):
    with pytest.raises(SettingError) as caught:
        HttpModel(address, KEY)
    assert not leaks(str(caught.value).encode())


def test_several_servers_hide_the_secrets_of_all():
    listed = [f"http://127.0.0.1:1/v1?key={QUERY}", f"http://127.0.0.1:2/v1?token={NESTED}"]
    secrets = ServersModel(listed, KEY).secrets(failed=False)
    assert secrets.words == {KEY, QUERY, NESTED}


def test_a_batch_api_repeats_no_key(tmp_path):
    path = tmp_path / "results.jsonl"

    async def run(url, work):
        async with closing(HttpModel(url, KEY, retries=ONCE)) as model:
            return await work(BatchApi(model, "m", retries=ONCE))

    for form in encodings(KEY).values():
        body = form * 3
        with RawEndpoint(always(lambda body=body: answer(body, head=OK))) as endpoint:
            asyncio.run(run(endpoint.url, lambda desk: desk.download("f", path)))
        assert form not in path.read_bytes()
    failed = json.dumps(
        {"id": "b", "status": "failed", "errors": {"data": [{"message": f"bad key {KEY}"}]}}
    ).encode()
    with RawEndpoint(always(lambda: answer(failed))) as endpoint:
        assert (
            asyncio.run(run(endpoint.url, lambda batches: batches.retrieve("b"))).error == f"bad key {MASK}"
        )


def test_a_redirect_of_results_carries_no_credential_to_another_host(tmp_path):
    async def run(url, **settings):
        async with closing(HttpModel(url, retries=ONCE, **settings)) as model:
            await BatchApi(model, "m", retries=ONCE).download("f", tmp_path / "results.jsonl")

    with RawEndpoint(always(lambda: answer(b"{}"))) as other:
        elsewhere = other.url.replace("127.0.0.1", "localhost").encode()
        moved = b"HTTP/1.1 302 Moved\r\nLocation: " + elsewhere + b"\r\n"
        with RawEndpoint(always(lambda: answer(b"", head=moved))) as endpoint:
            asyncio.run(run(f"{endpoint.url}?key={QUERY}", api_key=KEY))
            asyncio.run(run(f"http://me:{PASSWORD}@127.0.0.1:{endpoint.port}/v1"))
            with pytest.raises(ModelError):
                asyncio.run(run(endpoint.url, headers={"X-Api-Key": EXTRA}))
        assert len(other.heads) == 2
        assert not leaks(b"".join(other.heads))


# --- every artefact of a run ------------------------------------------------------------------------------


def repeating(body, number):
    """A judge that decides, and repeats every secret in an encoding of its own on the way."""
    forms = [
        form for form in list(encodings(KEY).values()) + list(encodings(QUERY).values()) if b"\0" not in form
    ]
    reply = better_quality_wins(body)
    form = forms[number % len(forms)].decode("utf-8", "replace")
    return Reply(
        f"I was sent {KEY} and {form}.\n{reply.text}",
        message={"reasoning": f"{form} {QUERY}"},
        more={"model": KEY},
    )


def artefacts(folder):
    """Every file below a folder, and the journal's rows besides its pages."""
    found = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for path in folder.rglob("*.sqlite"):
        with sqlite3.connect(path) as rows:
            tables = [name for (name,) in rows.execute("select name from sqlite_master where type = 'table'")]
            for table in tables:
                found[f"{path}:{table}"] = repr(rows.execute(f'select * from "{table}"').fetchall()).encode()
    return found


def test_no_artefact_of_a_run_has_a_secret_and_the_run_is_replayed(tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 3, n=4)
    run, page, journal = tmp_path / "run", tmp_path / "page.html", tmp_path / "journal.sqlite"
    with ScriptedEndpoint(repeating) as server:
        done = caps(
            "select", cases, "--model", "stub", "--base-url", f"{server.url}?api-key={QUERY}&api-version=3",
            "--extra", f"user_token={EXTRA}", "--extra", json.dumps({"password": NESTED}).join(["metadata=", ""]),
            "--extra", "reasoning_effort=low", "--extra", "top_k=5", "--journal", journal, "--out", run, "--json",
            CAPS_API_KEY=KEY,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        sent = server.bodies[-1]
    assert (sent["user_token"], sent["metadata"], sent["reasoning_effort"]) == (
        EXTRA,
        {"password": NESTED},
        "low",
    )
    shown = caps("report", run, "-o", page)
    assert shown.returncode == 0, shown.stderr
    replayed = caps("replay", run)
    assert replayed.returncode == 0, replayed.stderr
    assert [one["order"] for one in json_lines(replayed)] == [one["order"] for one in json_lines(done)]
    assert "all as in the run" in replayed.stderr
    made = json.loads((run / "run.json").read_bytes())
    secret = {"base_url": [f"http://me:{PASSWORD}@host/v1?key={QUERY}"], "extra": {"user_token": EXTRA}}
    old = {**made, "config": {**made["config"], **secret}}
    (run / "run.json").write_text(json.dumps(old))  # as an earlier version wrote it
    assert caps("report", run, "-o", tmp_path / "old.html").returncode == 0
    assert b"host/v1?key=***" in (tmp_path / "old.html").read_bytes()
    (run / "run.json").write_text(json.dumps(made))
    again = caps("replay", run, "--ask", CAPS_API_KEY=KEY)
    assert (again.returncode, "may be secret" in again.stderr) == (2, True)
    found = artefacts(tmp_path) | {
        f"{name} of {words[0]}": text.encode()
        for words, process in (
            (["select"], done),
            (["report"], shown),
            (["replay"], replayed),
            (["ask"], again),
        )
        for name, text in (("stdout", process.stdout), ("stderr", process.stderr))
    }
    assert {run / name for name in ("run.json", "selections.jsonl", "rulings.jsonl")} <= set(run.iterdir())
    assert {name: leaks(payload) for name, payload in found.items() if leaks(payload)} == {}
    assert any(MASK.encode() in payload for name, payload in found.items() if "journal" in name)
    made = json.loads((run / "run.json").read_bytes())["config"]
    assert made["base_url"] == [f"{server.url}?api-key={MASK}&api-version=3"]
    assert (made["extra"]["reasoning_effort"], made["extra"]["top_k"]) == ("low", 5)
    assert made["extra"]["user_token"].startswith("sha256:")


def test_a_run_that_is_refused_prints_no_secret(tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 1, n=2)
    for form in ("JSON, every character escaped", "UTF-16", "base64 of a header", "percent, every character"):
        with RawEndpoint(
            always(lambda form=form: answer(encodings(KEY)[form], head=b"HTTP/1.1 401 No\r\n"))
        ) as endpoint:
            done = caps(
                "select", cases, "--model", "m", "--base-url", f"{endpoint.url}?key={QUERY}", "--no-journal",
                "--out", tmp_path / "run", CAPS_API_KEY=KEY,
            )  # fmt: skip
        assert done.returncode != 0
        assert "Traceback" not in done.stderr
        assert not leaks((done.stdout + done.stderr).encode())
        assert not any(leaks(payload) for payload in artefacts(tmp_path).values())


def test_models_and_the_doctor_show_no_secret():
    for words in (["list", "models"], ["doctor"]):
        with ScriptedEndpoint([Reply()], models=[f"m-{KEY}"]) as server:
            done = caps(*words, CAPS_BASE_URL=f"{server.url}?key={QUERY}", CAPS_API_KEY=KEY, CAPS_MODEL="m")
        assert server.url in done.stdout
        assert not leaks((done.stdout + done.stderr).encode())


def test_files_of_a_batch_have_no_key(tmp_path):
    cases, folder = write_cases(tmp_path / "cases.jsonl", 2, n=4), tmp_path / "batch"
    words = (
        "select", cases, "--engine", "batch", "--batch-dir", folder, "--strategy", "caps", "--model", "m",
        "--extra", f"user_token={EXTRA}", "--journal", tmp_path / "j.sqlite", "--out", tmp_path / "run",
    )  # fmt: skip
    while (done := caps(*words, CAPS_API_KEY=KEY)).returncode == 4:
        assert not leaks(done.stderr.encode())
        answer_files(folder)
    assert len(json_lines(done)) == 2
    for name, payload in artefacts(tmp_path).items():
        found = leaks(payload)
        provided = "requests/" in name and set(found) == {EXTRA}  # which the provider is to get
        assert found == [] or provided, name


def test_a_run_through_batches_has_no_secret(tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 2, n=4)
    with BatchServer(fate=repeating) as server:
        done = caps(
            "select", cases, "--model", "stub", "--base-url", f"{server.url}?key={QUERY}", "--engine", "batch",
            "--batch", "poll=0.01", "--journal", tmp_path / "j.sqlite", "--out", tmp_path / "run", "--json",
            CAPS_API_KEY=KEY,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not leaks((done.stdout + done.stderr).encode())
    assert {name: leaks(payload) for name, payload in artefacts(tmp_path).items() if leaks(payload)} == {}


# --- the server -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 400, 401, 500])
def test_what_the_server_passes_on_has_the_key_in_no_encoding(status):
    async def work(server):
        return [
            await server(body=asked(model="plain")),
            await server("GET", "/v1/models"),
        ], server.log.getvalue()

    for name, form in encodings(KEY).items():
        head = b"HTTP/1.1 %d Said\r\nX-Request-Id: %b\r\n" % (status, b"id" if b"\0" in form else form)
        with RawEndpoint(
            always(lambda form=form, head=head: answer(b"I was sent " + form + b"!", head=head))
        ) as endpoint:
            answers, log = inside(endpoint.url, work, key=KEY)
        assert answers[0].status == status
        assert answers[0].body.startswith(b"I was sent")
        for one in answers:
            assert form not in one.body, name
            assert form.decode("latin-1") not in str(one.headers), name
        assert not leaks(log.encode())


def test_a_stream_that_is_passed_on_has_the_key_neither_in_a_part_nor_across_two():
    events = [
        b'data: {"choices": [{"delta": {"content": "' + part + b'"}}]}\n\n'
        for part in (b"It", KEY.encode(), b"4")
    ]
    body = b"".join(events)

    async def work(server):
        return await server(body=asked(model="plain", stream=True))

    for size in (1, 7, 1000):
        parts = [chunk(body[start : start + size]) for start in range(0, len(body), size)]
        sent = [OK + b"Transfer-Encoding: chunked\r\n\r\n", *parts, b"0\r\n\r\n"]
        with RawEndpoint(always(lambda sent=sent: sent)) as endpoint:
            got = inside(endpoint.url, work, key=KEY)
        assert got.body == body.replace(KEY.encode(), MASK.encode())


async def test_a_selected_answer_has_the_key_in_no_field():
    said_so = Reply(f"It is 4, {KEY}", message={"tool_calls": None, "note": KEY}, more={"id": KEY})
    async with ScriptedEndpoint([said_so]) as upstream, served(upstream.url, key=KEY, prompts=True) as server:
        whole = await server(body=asked(caps={"n": 2, "strategy": "majority"}))
        stream = await server(body=asked(stream=True, caps={"n": 2, "strategy": "majority"}))
        answers, log = [whole, stream], server.log.getvalue()
    assert [one.status for one in answers] == [200, 200]
    assert MASK.encode() in answers[0].body
    assert not leaks(b"".join(one.body for one in answers) + log.encode())


def test_a_server_in_a_process_of_its_own_logs_and_sends_no_secret():
    with ScriptedEndpoint(repeating) as upstream:
        address = f"{upstream.url}?key={QUERY}"
        with running(address, "--log-prompts", CAPS_API_KEY=KEY) as server:
            body = json.dumps(asked("vary", caps={"n": 2, "strategy": "round-robin"})).encode()
            got = fetched(server.port, body)
            server.end()
        assert b'"choices"' in got
        assert not leaks(got + json.dumps(server.lines).encode() + server.url.encode())


def fetched(port, body):
    connection = HTTPConnection("127.0.0.1", port, timeout=240)
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    got = connection.getresponse().read()
    connection.close()
    return got


# --- what is written down of addresses and extra fields ---------------------------------------------------


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://host/v1", "http://host/v1"),
        (f"http://me:{PASSWORD}@host/v1", "http://host/v1"),
        (f"http://{PASSWORD}@host/v1", "http://host/v1"),
        (f"https://host/v1?api-key={QUERY}&api-version=2", "https://host/v1?api-key=***&api-version=2"),
        (f"https://host/v1?{QUERY}", "https://host/v1?***"),
        (f"https://host/v1?a=1;sig={QUERY}", "https://host/v1?a=***&sig=***"),
        (f"https://host/v1#{QUERY}", "https://host/v1"),
        (f"http://a/v1=2?k={QUERY}, http://me:{PASSWORD}@b/v1", "http://a/v1=2?k=***,http://b/v1"),
        ("file:///weights.gguf", "file:///weights.gguf"),
    ],
)
def test_of_an_address_no_credential_is_written_down(address, shown):
    assert shown_address(address) == shown


def test_of_extra_fields_numbers_and_known_texts_are_written_down():
    extra = {
        "top_k": 5, "seed": None, "cache_prompt": False, "reasoning_effort": "low", "stop": ["a", "b"],
        "chat_template_kwargs": {"enable_thinking": False, "mode": "x", "api_token": NESTED},
        "user": EXTRA, "metadata": {"a": [1, EXTRA]},
    }  # fmt: skip
    recorded = recorded_extra(extra)
    assert {name: recorded[name] for name in list(extra)[:5]} == {
        name: extra[name] for name in list(extra)[:5]
    }
    assert recorded["chat_template_kwargs"]["mode"] == "x"
    assert not leaks(json.dumps(recorded).encode())
    assert unrecorded(recorded) == ["chat_template_kwargs", "user", "metadata"]
    assert recorded_extra(recorded) == recorded
    assert not leaks(json.dumps(recorded_extra({"a": {EXTRA}, "b": EXTRA.encode(), "c": (EXTRA,)})).encode())


@given(
    st.dictionaries(
        st.sampled_from(["user", "stop", "metadata"]), st.text(max_size=5) | st.integers(0, 9), max_size=3
    )
)
def test_the_journal_finds_a_request_by_what_is_recorded_of_it(extra):
    request = Request((Message("user", "?"),), "m", extra=extra)
    recorded = Request((Message("user", "?"),), "m", extra=recorded_extra(extra))
    assert request_key(request) == request_key(recorded)
    other = Request((Message("user", "?"),), "m", extra={**extra, "user": "someone else"})
    assert (request_key(request) == request_key(other)) is (extra.get("user") == "someone else")


def test_an_extra_that_is_no_json_is_refused_without_its_value():
    with pytest.raises(SettingError, match="'x'") as caught:
        request_key(Request((), "m", extra={"x": object(), "y": {"stop": EXTRA}}))
    assert EXTRA not in str(caught.value)
