import pytest

from caps import Level
from caps.core.errors import SettingError
from caps.core.types import Usage
from caps.costs.ledger import Ledger, Sums
from caps.costs.prices import Price, listed_price


def ledger():
    book = Ledger()
    book.record("A", Level.PARTIAL, [(Usage(100, 10, cached=40), False)], statement=30, pair=True)
    book.record(
        "B",
        Level.FULL,
        [(Usage(900, 20), True), (Usage(900, 30, reasoning=5), False)],
        statement=30,
        pair=True,
    )
    book.record("C", Level.FULL, [(Usage(1100, 25), False)], statement=30, pair=True)
    return book


def test_asked_counts_everything_and_billed_only_what_was_sent_now():
    total = ledger().total()
    assert (total.calls, total.attempts) == (3, 4)
    assert (total.asked, total.billed, total.cached) == (3000, 2100, 40)
    assert (total.output, total.reasoning, total.statement) == (65, 5, 120)


def test_calls_and_rho_are_by_level():
    book = ledger()
    assert book.calls == {"E1": 1, "E2": 2}
    assert book.rho == pytest.approx(100 / 1000)
    assert Ledger().rho is None


def test_a_failed_call_does_not_disturb_rho():
    book = ledger()
    book.record("A", Level.PARTIAL, [(Usage(0, 0), False)], statement=30, pair=True)
    assert book.rho == pytest.approx(0.1)


def test_ledgers_add_up():
    book = Ledger()
    book.add(ledger())
    book.add(ledger())
    assert book.total(Level.FULL).asked == 2 * ledger().total(Level.FULL).asked
    book.malformed["refused"] += 1
    other = Ledger(estimated=True)
    other.add(book)
    assert (other.malformed, other.estimated) == ({"refused": 1}, True)


def test_an_estimate_anywhere_is_remembered():
    book = Ledger()
    book.record("A", Level.FULL, [(Usage(10, 1, estimated=True), False)], statement=0, pair=True)
    assert book.estimated


def test_a_price_is_dollars_a_million_and_rereading_may_be_cheaper():
    sums = Sums(billed=1_000_000, cached=400_000, output=100_000)
    assert Price(1.0, 10.0).of_sums(sums) == pytest.approx(2.0)
    assert Price(1.0, 10.0, cached=0.1).of_sums(sums) == pytest.approx(0.6 + 0.04 + 1.0)


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
def test_an_impossible_price_is_refused(wrong):
    with pytest.raises(SettingError, match="price of output"):
        Price(1.0, wrong)


def test_the_offline_table_knows_a_provider_by_its_address_and_nobody_else():
    known = listed_price("gpt-4o-mini", "https://api.openai.com/v1")
    assert known is not None
    assert 0 < known.input < known.output
    assert known.cached < known.input
    assert listed_price("gpt-4o-mini", "http://localhost:8000/v1") is None
    assert listed_price("no-such-model", "https://api.openai.com/v1") is None
