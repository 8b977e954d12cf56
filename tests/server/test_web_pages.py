"""The server's own pages: open without a key and empty of data; recent requests and CORS only where wanted."""

import pytest

from caps.config import RunConfig
from caps.core.errors import SettingError
from caps.server.admission import Limits
from caps.server.app import ServerConfig
from caps.session.resolve import resolve
from caps.testing import ScriptedEndpoint, asked, upstream
from support.serving import inside, served

KEY = {"authorization": "Bearer right"}


async def test_pages_are_open_and_may_run_nothing_but_their_own_script():
    async with (
        ScriptedEndpoint(upstream) as server,
        served(server.url, keys=("right",), limits=Limits(recent=5)) as app,
    ):
        home, docs, recent, description = [
            await app("GET", path) for path in ("/", "/docs", "/recent", "/openapi.json")
        ]
    assert [one.status for one in (home, docs, recent, description)] == [200, 200, 401, 401]
    for page in (home, docs):
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'sha256-" in policy
        assert "unsafe" not in policy
        assert "connect-src 'self'" in policy
        assert b"http://" not in page.body.replace(b"http://www.w3.org/2000/svg", b"")
        assert server.url.encode() not in page.body


def test_recent_requests_are_kept_where_wanted_and_the_oldest_forgotten():
    async def work(app):
        for text in ("first?", "second?", "third?"):
            assert (await app(body=asked(text))).status == 200
        return (await app("GET", "/recent")).json["requests"]

    with ScriptedEndpoint(upstream) as server:
        kept = inside(server.url, work, limits=Limits(recent=2))
        none = inside(server.url, work)
    assert [(one["question"], one["answer"]) for one in kept] == [
        ("third?", "It is 4."),
        ("second?", "It is 4."),
    ]
    assert kept[0]["samples"] == 8
    assert none is None


async def test_only_the_named_origins_may_use_the_server_from_a_browser():
    async with (
        ScriptedEndpoint(upstream) as server,
        served(server.url, keys=("right",), cors=("https://app.example",)) as app,
    ):
        ask = {"access_control_request_method": "POST", "access_control_request_headers": "authorization"}
        preflight = await app("OPTIONS", "/v1/select", origin="https://app.example", **ask)
        other = await app("OPTIONS", "/v1/select", origin="https://evil.example", **ask)
        refused = await app(body=asked(), origin="https://app.example", authorization="Bearer wrong")
    allowed = "access-control-allow-origin"
    assert (preflight.status, preflight.headers[allowed]) == (200, "https://app.example")
    assert preflight.headers["access-control-allow-headers"] == "authorization"
    assert allowed not in other.headers
    assert (refused.status, refused.headers[allowed]) == (401, "https://app.example")


@pytest.mark.parametrize("origin", ["*", "app.example", "https://app.example/path"])
def test_an_origin_that_is_none_or_all_of_them_is_refused(origin):
    resolved = resolve(RunConfig(base_url=("http://localhost:1/v1",)), any_model=True)
    with pytest.raises(SettingError, match="--cors"):
        ServerConfig(resolved=resolved, cors=(origin,))
