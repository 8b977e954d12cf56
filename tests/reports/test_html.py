"""Words of others never become markup or script, and nothing in them stays unseen."""

import json
from html.parser import HTMLParser

from hypothesis import example, given, settings
from hypothesis import strategies as st

from caps.reports.html import Template, TextTable, el, markup, safe_json, visible

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
    found = read(markup(el("p", words, title=words)))
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


def test_a_text_shown_often_is_kept_once_and_reads_the_same():
    texts = TextTable()
    one, two = texts.add(["head", "x" * 50]), texts.add(["head", "y"])
    assert texts.texts == ["head", "x" * 50, "y"]
    assert markup(el("pre", two), texts.texts) == "<pre>\nheady</pre>"
    assert safe_json(el("pre", one)) == '["pre",{},[{"t":[0,1]}]]'


def test_a_template_is_filled_like_an_element_and_its_values_stay_text():
    row = Template("test-row", 4, lambda call, title, more, tone: el(
        "a", el("b", title), more, href="#g" + call, class_=tone))  # fmt: skip
    filled = row(7, HOSTILE, [el("i", "x"), row(1.25, "y", None, None)], None)
    found = read(markup(filled))
    assert found.tags == ["a", "b", "i", "a", "b"]
    assert found.attributes == [("href", "#g7"), ("href", "#g1.2")]
    assert found.text == f"{visible(HOSTILE)}xy"
    assert json.loads(safe_json(filled)) == {
        "f": "test-row",
        "v": [
            7,
            visible(HOSTILE),
            [["i", {}, ["x"]], {"f": "test-row", "v": [1.2, "y", None, None]}],
            None,
        ],
    }
