import asyncio

import pytest

from caps import Caps, Case, select, select_sync
from caps.core.errors import CapsError, UnreachableError
from caps.testing import Reply, ScriptedEndpoint, Status, better_quality_wins

CASE = Case.of("What is it?", [f"quality={q} \\boxed{{{q}}}" for q in (0.1, 0.9, 0.4, 0.3)], domain="math")


def test_one_case_one_call():
    with ScriptedEndpoint(better_quality_wins) as server:
        best = asyncio.run(select(CASE, model="stub", base_url=server.url, strategy=Caps(finalists=2)))
    assert best.winner == 1
    assert best.text.startswith("quality=0.9")
    assert best.order[0] == 1
    assert best.tokens == best.ledger.total().billed > 0


def test_it_works_without_await_and_inside_a_running_loop():
    with ScriptedEndpoint(better_quality_wins) as server:
        assert select_sync(CASE, model="stub", base_url=server.url).winner == 1

        async def notebook():
            return select_sync(CASE, model="stub", base_url=server.url, strategy="v1-infer")

        assert asyncio.run(notebook()).winner == 1


def test_with_a_journal_nothing_is_paid_twice(tmp_path):
    with ScriptedEndpoint(better_quality_wins) as server:
        settings = {"model": "stub", "base_url": server.url, "journal": tmp_path / "j.sqlite"}
        select_sync(CASE, **settings)
        asked = server.requests
        assert select_sync(CASE, **settings).ledger.total().billed == 0
        assert server.requests == asked


def test_what_goes_wrong_is_raised_also_out_of_a_running_loop():
    with pytest.raises(CapsError, match="no server answers at"):
        select_sync(CASE, model="m", base_url="http://127.0.0.1:9/v1")
    with ScriptedEndpoint([Reply("OK"), Status(400, "no")]) as server, pytest.raises(CapsError):
        select_sync(CASE, model="m", base_url=server.url, confidence="auto")

    async def notebook():
        return select_sync(CASE, model="m", base_url="http://127.0.0.1:9/v1", confidence="auto")

    with pytest.raises(UnreachableError):
        asyncio.run(notebook())
