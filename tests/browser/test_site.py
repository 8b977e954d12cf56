"""The documentation site in a real browser, opened from disk: nothing is asked of the network, and search works."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from browser.test_page import axe  # noqa: F401

ROOT = Path(__file__).parents[2]
CHROMIUM = Path("/usr/bin/chromium")
pytestmark = [
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no /usr/bin/chromium: sh scripts/install_chromium.sh"),
    pytest.mark.xdist_group("browser"),
]
#: A page of each kind: headings, tables, code, wide tables, options, documented classes, definitions.
PAGES = (
    "index", "tutorial", "howto/configure", "reference/cli/index", "reference/cli/select", "reference/python", "reference/settings",
    "reference/files", "research/peers", "explanation/how-caps-works", "glossary", "changelog",
)  # fmt: skip


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


def test_the_first_screen_shows_the_product(site, page):
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto((site / "index.html").as_uri())
    picture = page.locator("article img").first.bounding_box()
    assert picture["y"] < 500
    assert picture["width"] > 500


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_to_complain_of(site, page, axe, scheme):  # noqa: F811
    page.emulate_media(color_scheme=scheme)
    for name in PAGES:
        page.goto((site / f"{name}.html").as_uri())
        page.evaluate(axe)
        found = page.evaluate(
            "axe.run().then((result) => result.violations.map((one) => [one.id, one.nodes[0].html]))"
        )
        assert found == [], name


def test_an_option_has_an_address(site, page):
    page.goto((site / "reference" / "cli" / "select.html").as_uri() + "#strategy")
    assert page.locator("#strategy").inner_text().startswith("--strategy")
