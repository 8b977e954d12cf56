"""Words of others never become markup or script, and nothing in them stays unseen."""

import json
from html.parser import HTMLParser

from hypothesis import example, given, settings
from hypothesis import strategies as st

from caps.reports.html import Html, el, escaped, join, safe_json, visible

HOSTILE = "</script></style><!--<script>alert(1)</script>\u2028\u202e&amp;\x00\ud800"


class Reader(HTMLParser):
    """Collects what a browser would take for elements, attributes and text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


@settings(max_examples=50)
@given(st.text())
@example(HOSTILE)
@example('"><img src=x onerror=alert(1)>')
def test_a_text_or_an_attribute_stays_one_whatever_is_in_it(words):
    found = read(el("p", words, title=words))
    assert found.tags == ["p"]
    assert found.attributes == [("title", visible(words))]
    assert found.text.replace("\r\n", "\n") == visible(words).replace("\r\n", "\n")


@settings(max_examples=50)
@given(st.text())
@example(HOSTILE)
def test_embedded_json_can_end_neither_script_nor_line(words):
    encoded = safe_json({"words": visible(words), words.encode("utf-8", "replace").decode(): 1})
    assert not set(encoded) & set("<>&\u2028\u2029")
    assert json.loads(encoded)["words"] == visible(words)


def test_what_cannot_be_seen_is_named_and_what_can_is_left_alone():
    assert visible("a\u202eb\u200bc\x1b[31m\ud800") == "a⟦U+202E⟧b⟦U+200B⟧c⟦U+001B⟧[31m⟦U+D800⟧"
    assert visible("tab\tline\r\nnext é 漢字 👩\u200d🔬") == "tab\tline\r\nnext é 漢字 👩\u200d🔬"


@settings(max_examples=50)
@given(st.text())
@example(HOSTILE)
@example("<b>")
def test_whatever_is_made_of_markup_is_a_text_again_and_is_escaped(words):
    """Only the functions of the module make markup: a text glued to markup does not become markup."""
    markup = el("b", words)
    for mixed in (f"{markup}", markup + words, markup.upper(), "".join([markup]), markup[:], "%s" % markup):  # noqa: UP031
        assert type(mixed) is not Html
        assert read(el("p", mixed)).tags == ["p"]
        assert read(escaped(mixed)).tags == []
    assert read(el("p", join([markup, words, None]))).tags == ["p", "b"]


def test_attributes_are_named_as_in_html_and_those_that_are_not_set_are_left_out():
    made = el("a", "x", class_="y", data_game=7, href=None, hidden=False, open=True, cx=1.25)
    assert made == '<a class="y" data-game="7" open="" cx="1.2">x</a>'
    assert el("pre", "\nx") == "<pre>\n\nx</pre>"
