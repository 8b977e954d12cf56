import io
import re

import pytest
from rich.console import Console

from caps.core.text import number, percent, printable
from caps.reports.console import table


def printed(drawn):
    out = io.StringIO()
    Console(file=out, width=100, force_terminal=False).print(drawn)
    return out.getvalue()


def test_words_of_others_are_neither_markup_nor_control_sequences():
    hostile = "[/nothing] [red]x[/red] \x1b[2J\x1b]0;title\x07 \u202eevil"
    text = printed(table("", ("case", "answer"), [(hostile, hostile)]))
    assert "[/nothing] [red]x[/red]" in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_what_is_readable_stays_as_it_is():
    assert printable("naïve ∑ 漢字 \n ok") == "naïve ∑ 漢字 \n ok"


def test_numbers_are_grouped_and_shares_have_their_interval():
    assert (number(1234567.0, 0), number(2.50), number(None)) == ("1,234,567", "2.5", "–")
    assert percent(0.5, (0.25, 0.75)) == "50.0  [25.0, 75.0]"


@pytest.mark.parametrize("width", [24, 40, 60, 80, 160])
def test_no_number_is_cut_short_however_narrow_the_window(width):
    rows = [
        ("caps-plus finalists=2", "66.7  [57.0, 75.1]", "121,765", "7.7 + 13.4", "21.1 (18-22)"),
        ("v1-infer", "0.0  [0.0, 15.1]", "1,020,000", "0 + 48", "–"),
    ]
    columns = ("strategy", "Pass@1 %", "tokens a case", "calls E1 + E2", "rounds")
    console = Console(width=width, file=io.StringIO(), highlight=False)
    console.print(table("figures", columns, rows))
    shown_ = console.file.getvalue()
    assert "…" not in shown_
    for row in rows:
        for part in re.findall(r"\[[^]]*\]|\([^)]*\)|[\d.,]+|[\w=-]+", " ".join(row)):
            assert part in shown_
    assert max(map(len, shown_.splitlines())) <= width


def test_a_wide_window_has_a_row_a_line_and_a_narrow_one_a_list():
    def drawn(width):
        console = Console(width=width, file=io.StringIO(), highlight=False)
        console.print(table("", ("name", "figure", "other"), [("a", "12,345,678", "1,234,567"), ("b",)]))
        return console.file.getvalue().splitlines()

    assert [line.rstrip() for line in drawn(80)] == [
        "name      figure      other", "a     12,345,678  1,234,567", "b",
    ]  # fmt: skip
    assert drawn(20) == ["a", "  figure  12,345,678", "  other   1,234,567", "b"]
