"""A model of another tool as the judge: its calls, its usage by context, its errors, and nothing paid twice."""

import asyncio
from contextvars import ContextVar

import pytest

from caps import Case, select_sync
from caps.core.errors import CapsError, SettingError
from caps.integrations.tool_models import ToolModel, reported, usage_of
from caps.models.base import Completion, Request
from caps.testing import better_quality_wins

CASE = Case.of("What is it?", [f"quality={q} \\boxed{{{q}}}" for q in (0.1, 0.9, 0.4, 0.3)], domain="math")
COUNTED: ContextVar[list[str]] = ContextVar("counted")


class OutOfCreditError(Exception):
    status_code = 401


class Client:
    """Counts by context, as tools do, and can fail after some calls."""

    def __init__(self, fails_after: int | None = None) -> None:
        self.calls, self.fails_after = 0, fails_after

    def model(self) -> ToolModel:
        return ToolModel("tool/m", self.complete)

    async def complete(self, request: Request) -> Completion:
        await asyncio.sleep(0)
        if self.fails_after is not None and self.calls >= self.fails_after:
            raise OutOfCreditError("no credit is left")
        self.calls += 1
        COUNTED.get().append(request.model)
        text = better_quality_wins({"messages": [{"content": request.messages[0].content}]}).text
        return Completion(text, "stop", usage_of(request, text, 100, 5))


def test_the_tool_counts_its_calls_also_from_a_running_loop(monkeypatch) -> None:
    monkeypatch.setenv("CAPS_BASE_URL", "http://nowhere.invalid/v1")  # not meant for an object
    monkeypatch.setenv("CAPS_JUDGE_MODEL", "another")
    COUNTED.set(counted := [])
    client = Client()
    assert select_sync(CASE, model=client.model(), journal=None).winner == 1

    async def notebook():
        return select_sync(CASE, model=client.model(), journal=None)

    chosen = asyncio.run(notebook())
    assert len(counted) == client.calls == 2 * chosen.ledger.total().calls
    assert set(counted) == {"tool/m"}
    assert chosen.tokens == 100 * chosen.ledger.total().calls


def test_a_failure_is_the_error_of_the_tool_and_what_was_paid_is_kept(tmp_path) -> None:
    COUNTED.set([])
    whole = Client()
    select_sync(CASE, model=whole.model(), journal=None)
    broken, journal = Client(fails_after=1), tmp_path / "journal"
    model = broken.model()
    with pytest.raises(OutOfCreditError, match="no credit is left") as caught, reported(RuntimeError, model):
        select_sync(CASE, model=model, journal=journal)
    assert caught.value.__notes__
    assert isinstance(caught.value.__cause__, CapsError)
    assert caught.value.__cause__.__cause__ is None  # a cycle would trap those who print it
    again = Client()
    select_sync(CASE, model=again.model(), journal=journal)
    assert again.calls == whole.calls - 1


def test_what_is_no_model_is_refused() -> None:
    for wrong, why in [(3, "has no method 'complete'"), (ToolModel, "is a class")]:
        with pytest.raises(SettingError, match=why):
            select_sync(CASE, model=wrong)
    with pytest.raises(RuntimeError, match="out of words"), reported(RuntimeError, Client().model()):
        raise CapsError("out of words")
