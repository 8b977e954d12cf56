import io

from rich.console import Console

from caps.reports.console import number, percent, shown, table


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
    assert shown("naïve ∑ 漢字 \n ok") == "naïve ∑ 漢字 \n ok"


def test_numbers_are_grouped_and_shares_have_their_interval():
    assert (number(1234567.0, 0), number(2.50), number(None)) == ("1,234,567", "2.5", "–")
    assert percent(0.5, (0.25, 0.75)) == "50.0  [25.0, 75.0]"
