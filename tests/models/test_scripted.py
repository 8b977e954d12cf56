import asyncio

import pytest

from caps.core.errors import BusyError, RefusedError
from caps.core.types import Message, Usage
from caps.models.base import Completion, Request
from caps.models.scripted import ScriptedModel


def ask(model, text="12345678"):
    return asyncio.run(model.complete(Request((Message("user", text),), "m")))


def test_a_function_of_the_request_replies():
    model = ScriptedModel(lambda request: request.messages[0].content.upper())
    assert ask(model, "abcd").text == "ABCD"
    assert ask(model, "abcde").usage == Usage(2, 2, estimated=True)
    assert model.calls == 2
    assert model.requests[0].messages == (Message("user", "abcd"),)


def test_lines_come_in_order_and_exceptions_are_raised():
    whole = Completion("B", "length", Usage(1, 1))
    model = ScriptedModel(["A", whole, BusyError("later")])
    assert ask(model).text == "A"
    assert ask(model) is whole
    with pytest.raises(BusyError, match="later"):
        ask(model)
    with pytest.raises(RefusedError, match="3 lines"):
        ask(model)
    assert model.calls == 4
