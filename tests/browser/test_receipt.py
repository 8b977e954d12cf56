"""Receipts in a real browser: keys, links to a game, rendered texts, pictures as files; hostile texts stay texts."""

import json
import re
from urllib.parse import quote

import pytest

from browser.test_page import CHROMIUM, CONTRAST, axe, browser, text_of, visit  # noqa: F401
from caps.cli.report import _write, open_run
from support.running import by_quality, run_cases

pytestmark = [
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no /usr/bin/chromium: sh scripts/install_chromium.sh"),
    pytest.mark.xdist_group("browser"),
]
SOLUTION = """We **sum** with quality={quality}: $\\sum_{{k=1}}^n k^2 = {answer}$ and

$$\\frac{{n(n+1)}}
{{2}}$$

```python
def total(n):
    return sum(range(n))  # as usual
```

| n | sum |
|---|---|
| 8 | 36 |

It is \\boxed{{{answer}}}."""
ATTACK = """<script>document.title='owned'</script><img src=x onerror=alert(1)> [a](javascript:alert(1))
![b](http://evil.example/b.png) <http://evil.example> $\\href{javascript:alert(1)}{x}$ $\\includegraphics{http://evil.example/c.png}$
$\\htmlStyle{background:url(http://evil.example)}{x}$ $\\def\\x{\\x\\x}\\x$ $\\rule{9999em}{9999em}$ $\\unknown$ \\boxed{\\text{</math><script>alert(1)</script>}}

""" + "> " * 300 + "deep" + "\n\n```html\n<script>alert(1)</script>\n```\n"  # fmt: skip
DIFF = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-quality={quality}\n+y = {answer}\n"
CALL = '{{"role": "assistant", "content": "quality={quality}", "tool_calls": [{{"function": {{"name": "look", "arguments": "{{\\"n\\": {answer}}}"}}}}]}}'


def case(name, template, more="", domain="math"):
    answers = ["36", "36", "28", "28", "12"]
    texts = [
        template.format(quality=0.9 - 0.1 * place, answer=answer) + more
        for place, answer in enumerate(answers)
    ]
    candidates = [
        {"text": text, "correct": answer == "36"} for text, answer in zip(texts, answers, strict=True)
    ]
    return json.dumps(
        {"id": name, "domain": domain, "problem": f"What is $1+2$?{more}", "candidates": candidates}
    )


def reply(request):
    return f"Because $x^2$ is **right**. {ATTACK}\n{by_quality(request)}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("receipts")
    lines = [case("sum", SOLUTION), case("attack", SOLUTION, ATTACK), case("patch", DIFF, domain="general")]
    lines.append(case("agent", "[" + CALL + "]", domain="general"))
    lines.append(case(ODD, SOLUTION))
    (place / "cases.jsonl").write_text("\n".join(lines) + "\n")
    run_cases(place / "cases.jsonl", place / "run", reply=reply, strategy="posterior")
    with open_run(place / "run") as run:
        _write([run], None, place / "report.html", texts=True)
    return place


ODD = """7/8 "odd" & 'id' 100%"""


@pytest.mark.parametrize("written", [ODD, quote(ODD), quote(ODD, safe="")])
def test_a_link_to_any_id_opens_its_case_however_it_is_escaped(visit, written):  # noqa: F811
    page = visit(f"report.html#case={written}")
    page.locator("h1", has_text=f"Case {ODD}").wait_for()


def test_a_link_to_a_case_that_is_not_there_says_so(visit):  # noqa: F811
    page = visit("report.html#case=nothing")
    page.get_by_text("There is no case nothing on this page.").wait_for()


def candidate_of(page, number):
    """A candidate, opened with the answer that it gives."""
    page.evaluate(f"document.getElementById('c{number}').closest('.answer-row').open = true")
    candidate = page.locator(f"#c{number}")
    candidate.evaluate("(one) => { one.open = true; }")
    return candidate


def receipt(page, name):
    page.evaluate(f"location.hash = 'case={name}'")
    page.locator("h1", has_text=f"Case {name}").wait_for()


def test_keys_lead_from_case_to_case_and_back(visit):  # noqa: F811
    page = visit()
    page.keyboard.press("j")  # the first row
    page.keyboard.press("Enter")
    page.locator("h1", has_text="Case sum").wait_for()
    page.keyboard.press("j")
    page.locator("h1", has_text="Case attack").wait_for()
    page.keyboard.press("k")
    page.locator("h1", has_text="Case sum").wait_for()
    page.keyboard.press("?")
    assert page.locator("dialog#keys").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("dialog#keys").is_visible()
    assert page.locator("#receipt").is_visible()
    page.get_by_role("link", name="next ›").click()
    page.locator("h1", has_text="Case attack").wait_for()
    page.keyboard.press("Escape")
    page.locator("#overview").wait_for()
    page.keyboard.press("k")  # from the row of the case that was open
    page.keyboard.press("Enter")
    page.locator("h1", has_text="Case sum").wait_for()
    page.keyboard.press("/")
    page.locator("input:focus").wait_for()
    page.keyboard.type("jk")
    assert page.locator("#overview").is_visible()


def test_a_link_opens_a_case_at_one_game_and_a_dot_of_the_picture_makes_such_a_link(visit):  # noqa: F811
    page = visit("report.html#case=sum&game=2")
    page.locator("#g2[open]").wait_for()
    assert page.locator("details.game[open]").count() == 1
    assert page.locator("#g2 > summary").inner_text().split()[0] == "2"
    page.locator("svg.beliefs circle").nth(1).click()
    page.locator("#g1[open]").wait_for()
    assert page.url.endswith("#case=sum&game=1")


def test_the_sentence_and_the_picture_say_which_answer_and_how_sure(visit):  # noqa: F811
    page = visit("report.html#case=sum")
    story = page.locator(".story").inner_text()
    assert re.search(r"2 of 5 agreed on 36; .* verdicts? confirmed it.*; \d+\.\d\s%\ssure\.", story)
    assert "win rate" not in page.locator("article").inner_text()
    assert page.locator(".chosen-answer .answer").inner_text() == "36"
    assert page.locator(".answer-row .who").all_inner_texts()[0].split() == ["36", "×", "2", "✓"]
    assert page.locator(".answer-row").count() == 3


def test_candidates_are_rendered_as_what_they_are_when_they_are_opened(visit):  # noqa: F811
    page = visit("report.html#case=sum")
    candidate = candidate_of(page, 0)
    candidate.locator("math").first.wait_for()
    assert candidate.locator("math[display=block] mfrac").count() == 1
    assert candidate.locator("strong").inner_text() == "sum"
    assert candidate.locator("pre .t-keyword").first.inner_text() == "def"
    assert candidate.locator("td").all_inner_texts() == ["8", "36"]
    candidate.get_by_role("button", name="As written").click()
    assert "$$\\frac{n(n+1)}" in candidate.inner_text()
    page.locator("#g1 > summary").click()
    page.locator("#g1 mark").first.wait_for()
    assert {"36", "28"} <= set(page.locator("#g1 mark").all_inner_texts())
    receipt(page, "patch")
    candidate_of(page, 0)
    page.locator("#c0 .diff .added").wait_for()
    receipt(page, "agent")
    candidate_of(page, 0)
    page.locator("#c0 .call").wait_for()
    assert "→ look" in page.locator("#c0").inner_text()


def test_hostile_formulas_links_and_markup_stay_text(visit):  # noqa: F811
    page = visit("report.html#case=attack")
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.locator("article .rich math").first.wait_for()
    shown = text_of(page.locator("#c0 .rich"))
    assert "<script>document.title='owned'</script><img src=x onerror=alert(1)>" in shown
    assert "[image: b]" in shown
    assert page.title() == "run · caps report"
    forbidden = (
        "article :is(script, img, iframe, style, object, [style], [onerror], a[href]:not([href^='#']))"
    )
    assert page.locator(forbidden).count() == 0
    assert page.evaluate("[...document.querySelectorAll('math *')].every((one) => !one.hasAttribute('href'))")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_an_opened_receipt_serves_everyone(visit, axe, theme):  # noqa: F811
    page = visit("report.html#case=sum")
    if theme == "dark":
        page.locator("#theme").click()
    page.evaluate(
        "document.querySelectorAll('.fold, .answer-row, #g1, #c0, #c2').forEach((one) => { one.open = true; })"
    )
    page.locator("#c0 math").first.wait_for()
    page.evaluate(axe)
    found = page.evaluate(
        "axe.run().then((result) => result.violations.map((one) => [one.id, one.nodes[0].html]))"
    )
    assert found == []
    assert page.evaluate(CONTRAST) == []
