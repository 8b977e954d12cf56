"""The documentation site in a real browser, opened from disk: nothing is asked of the network, and search works."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHROMIUM = Path("/usr/bin/chromium")
pytestmark = [
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no /usr/bin/chromium: sh scripts/install_chromium.sh"),
    pytest.mark.xdist_group("browser"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        check=True,
        capture_output=True,
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )
    return folder


@pytest.fixture
def page(site):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        opened = browser.new_page()
        opened.asked = []
        opened.on("request", lambda request: opened.asked.append(request.url))
        yield opened
        browser.close()


def test_the_site_asks_nothing_of_the_network_and_its_search_finds_a_term(site, page):
    page.goto((site / "index.html").as_uri())
    assert page.locator("article img[src$='how-caps-works.svg']").count() == 1
    page.locator("input.md-search__input").click()
    page.keyboard.type("rescue")
    page.locator(".md-search-result__item a").first.wait_for(timeout=60_000)
    assert page.locator("a.md-search-result__link").count() > 3
    page.goto((site / "reference" / "python.html").as_uri())
    assert page.locator("h3[id='caps.best']").count() == 1
    assert [url for url in page.asked if not url.startswith(("file:", "data:"))] == []
