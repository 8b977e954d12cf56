"""The page of `caps serve` in a real browser: a question is asked and followed; hostile answers stay text."""

import re

import pytest

from browser.test_page import CHROMIUM, CONTRAST, axe
from caps.testing import Reply, ScriptedEndpoint, is_judge, running

pytestmark = [
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no /usr/bin/chromium: sh scripts/install_chromium.sh"),
    pytest.mark.xdist_group("browser"),
]
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"
__all__ = ["axe"]


def upstream(body, number):
    if is_judge(body):
        return Reply("no verdict")
    return Reply(f"{HOSTILE} \\boxed{{{391 if number % 3 else 381}}}")


@pytest.fixture(scope="module")
def served():
    with ScriptedEndpoint(upstream) as server, running(server.url, "--recent", 5) as serving:
        yield serving.url.removesuffix("/v1")


@pytest.fixture(scope="module")
def browser(served):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        running_browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield running_browser
        running_browser.close()


def test_a_question_is_asked_followed_and_explained_and_the_api_described(served, browser, axe):
    troubles = []
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda request: request.url.startswith(served) or troubles.append(request.url))
    page.goto(served)
    page.get_by_label("Model").locator("option").first.wait_for(state="attached")
    page.get_by_label("Question").fill("What is 17 * 23?")
    page.get_by_role("button", name="Ask").click()
    page.locator("#result .lead").wait_for()
    assert HOSTILE in page.locator("pre.answer").inner_text()
    stated = re.search(r"(\d) of (\d) agree; not judged", page.locator("#result .lead").inner_text())
    agree, samples = map(int, stated.groups())  # how many samples come before it stops depends on the load
    assert samples / 2 < agree < samples, "two of three samples say 391"
    assert page.locator("#result svg circle").count() >= 1
    assert page.locator(".answers li").first.inner_text().startswith("391")
    page.locator("#requests details").wait_for()
    page.locator("#requests summary").click()
    assert "What is 17 * 23?" in page.locator("#requests pre").first.inner_text()
    for place in ("/", "/docs"):
        if place == "/docs":
            page.goto(served + place)
            page.get_by_role("heading", name="POST /v1/select").wait_for()
        assert page.evaluate(CONTRAST) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.evaluate(axe)
        assert page.evaluate("axe.run().then((found) => found.violations.map((one) => one.id))") == []
    assert page.title() == "caps serve: API"
    assert troubles == []
