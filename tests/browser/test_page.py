"""The page in a real browser, open_run from disk: it works, it is silent, and hostile words stay words."""

import asyncio
import json
import re
import shutil
import subprocess
import tarfile
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest
from aiohttp import web

from caps.cli.report import _write, open_run
from caps.core.types import Case, Problem
from caps.judging.simulated import PRESETS
from caps.reports import page as pages
from caps.reports.diagnosis import JudgeLabel
from caps.reports.diagnosis_page import diagnosis_page
from caps.reports.live import HOST, LiveReport
from caps.reports.paper_page import paper_page
from caps.reports.simulation_page import simulation_page, simulation_picture
from caps.reports.study import Chapter
from caps.runs.progress_file import ProgressFile
from caps.studies.advice import conclude
from caps.studies.diagnosis import Plan, of_pools, schedule, simulate
from caps.studies.metrics import Figure
from caps.studies.simulation import PoolModel, generated_pools
from caps.studies.tables import Cell, Table
from caps.testing import QUALITY, case_line, spread
from support.running import by_quality, run_cases

CHROMIUM = Path("/usr/bin/chromium")
pytestmark = [
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no /usr/bin/chromium: sh scripts/install_chromium.sh"),
    pytest.mark.xdist_group("browser"),
]
PLACES = (
    ("report.html", "#"),
    ("report.html", "#case=case%201"),
    ("diagnosis.html", "#"),
    ("simulation.html", "#"),
    ("compared.html", "#"),
    ("compared.html", "#case=case%201"),
    ("study.html", "#"),
)
HOSTILE_NAME = "b<img src=x onerror=alert(1)>"
OWN = ("file:", "blob:")  # blobs are made by the page, to save a table
HOSTILE = "<script>document.title='owned'</script></style></script><img src=x onerror=alert(1)>\u202egnihsif\u2066 javascript:alert(1)"


def reply(request):
    return (
        f"{HOSTILE}\n{by_quality(request)}" if "owned" in request.messages[0].content else by_quality(request)
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("page")
    lines = [case_line(f"case {start}", spread(16, start)) for start in range(3)]
    bad = json.loads(case_line(f"bad {HOSTILE}", spread(8)))
    bad["problem"] += HOSTILE
    for candidate in bad["candidates"]:
        candidate["text"] += HOSTILE
    lines.append(json.dumps(bad))
    (place / "cases.jsonl").write_text("\n".join(lines) + "\n")
    run_cases(place / "cases.jsonl", place / "run", reply=reply)
    run_cases(place / "cases.jsonl", place / HOSTILE_NAME, reply=reply, strategy="majority")
    with open_run(place / "run") as run, open_run(place / HOSTILE_NAME) as other:
        _write([run, other], None, place / "compared.html", texts=True)
        _write([run], None, place / "report.html", texts=True)
        inline_limit, pages.INLINE_LIMIT = pages.INLINE_LIMIT, 1000
        try:
            _write([run], None, place / "large.html", texts=True)
        finally:
            pages.INLINE_LIMIT = inline_limit
        _write([run], "case 1", place / "case.html", texts=True)
    write_findings(place)
    return place


def write_findings(place):
    """The pages of a diagnosis and of a simulation whose names were chosen by an enemy."""
    plan = Plan(pairs=30)
    pools = list(of_pools(generated_pools(PoolModel(n=4), 20, 1)))
    found = conclude(simulate(schedule(pools, plan), plan, PRESETS["90"]), pools, seed=1, contests=5)
    bad = replace(found.options[0], strategy=HOSTILE)
    found = replace(found, options=(bad, *found.options[1:]), chosen=bad)
    judge = JudgeLabel(source=HOSTILE, model=HOSTILE, simulated=True)
    page = diagnosis_page(found, judge, f"caps select {HOSTILE}", pairs_most=30, made=[("cases", HOSTILE)])
    pages.write_page(page, (), place / "diagnosis.html")
    row = {
        "strategy": HOSTILE, "pass_at_1": 0.5, "pass_at_1_interval": (0.4, 0.6), "tokens": {"E1": 10, "E2": 20},
        "token_share": None, "calls": {"E1": 1, "E2": 2}, "mixed_pass_at_1": None, "mixed_interval": None,
        "depth": 3.0, "pair_accuracy": {"E1": None, "E2": 0.7},
    }  # fmt: skip
    about = {
        "simulated": "pools and verdicts", "seed": 1, "problems": 9, "pass_at_n": 1.0, "mean_correct": 0.5,
        "rho": 0.12, "judge": asdict(PRESETS["90"]), "pools": {"cases": HOSTILE},
    }  # fmt: skip
    rows = [row, {**row, "strategy": "other", "pass_at_1": 0.55}]
    page = simulation_page(about, rows, simulation_picture(about, rows), baseline="v1")
    pages.write_page(page, (), place / "simulation.html")
    cells = [Cell("pass_at_1", Figure(0.5, 0.4, 0.6), 60.0), Cell("token_share", Figure(0.3))]
    heads = (f"{HOSTILE} Pass@1", f"{HOSTILE} T%")
    table = Table("t", HOSTILE, "method", heads, ((HOSTILE, cells), ("plain", cells)), (HOSTILE,))
    chapter = Chapter(HOSTILE, HOSTILE, f"caps bench {HOSTILE}", [table], "pools and verdicts")
    pages.write_page(
        paper_page(None, [chapter, replace(chapter, title="Again")], simulated=HOSTILE, limit=1),
        (),
        place / "study.html",
    )


@pytest.fixture(scope="module")
def browser(folder):  # the run first: a browser under way holds the event loop
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def visit(browser, folder):
    """Opens a page from disk; whatever it says on the console, asks of the network or pops up fails the test."""
    contexts, troubles = [], []

    def open_page(name="report.html", *, width=1200, **more):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme="light", **more)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.on("request", lambda request: request.url.startswith(OWN) or troubles.append(request.url))
        file, mark, place = name.partition("#")
        page.goto((folder / file).as_uri() + mark + place)
        if more.get("java_script_enabled", True):
            page.locator("html[data-ready]").wait_for(state="attached")
        if place.startswith("case="):
            page.locator("article, #no-case").first.wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


def text_of(pre):
    """The words of a folded text: they are put in a moment after it opens."""
    pre.filter(has_text=re.compile(r"\S")).wait_for()
    return pre.inner_text()


def go_to(page, place):
    """Follow a link within the page, and be there."""
    page.evaluate(f"location.hash = {place!r}")
    if "case=" in place:
        page.locator("article").first.wait_for()


def names(page):
    return page.locator("#listing tbody th").all_inner_texts()


def column(page, name):
    """The cells of a column."""
    heads = page.locator("#listing thead th").all_inner_texts()
    return page.locator(f"#listing tbody td:nth-child({heads.index(name) + 1})").all_inner_texts()


def test_cases_sort_filter_are_found_and_the_address_keeps_it(visit):
    page = visit()
    assert len(names(page)) == 4
    page.get_by_role("button", name="tokens read").click()
    tokens = column(page, "tokens read")
    assert tokens == sorted(tokens, key=lambda text: -int(text.replace(",", "")))
    assert page.locator("#listing th[aria-sort=descending]").inner_text() == "tokens read"
    page.get_by_role("button", name=re.compile("^right")).click()
    assert set(column(page, "result")) == {"✓ right"}
    assert page.url.endswith("#filter=right&sort=-tokens+read")
    page.get_by_role("button", name="all 4").click()
    page.get_by_label("Find a case").fill("in no problem")
    assert names(page) == []
    page.get_by_label("Find a case").fill("title='OWNED'")  # words of a problem
    assert [name[:4] for name in names(page)] == ["bad "]
    page.get_by_label("Find a case").fill("CASE 2")
    page.reload()
    assert (names(page), page.get_by_label("Find a case").input_value()) == (["case 2"], "CASE 2")
    page.get_by_role("link", name="case 2").click()
    page.get_by_role("link", name="← all cases").click()
    assert names(page) == ["case 2"]


def test_keys_search_walk_the_rows_and_open_one(visit):
    page = visit()
    page.keyboard.press("/")
    page.keyboard.type("case")
    assert len(names(page)) == 3
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.locator("article").wait_for()
    assert "#case=case%201" in page.url


def test_a_receipt_opens_a_game_shows_the_prompt_and_back_leads_home(visit):
    page = visit()
    page.get_by_role("link", name="case 1").click()
    page.locator("h1", has_text="Case case 1").wait_for()
    assert not page.locator("#overview").is_visible()
    page.locator(".bracket [data-game='2']").click()
    game = page.locator("#g2")
    assert game.get_attribute("open") is not None
    game.get_by_text("Prompt and reply", exact=True).click()
    prompt, reply = (text_of(game.locator(".fold pre").nth(place)) for place in (0, 1))
    assert len(QUALITY.findall(prompt)) == 2
    assert "<winner>" in reply
    assert "<winner>" not in text_of(game.locator(".reply"))
    assert "this is what was sent" in game.inner_text()
    page.locator(".bracket [data-game='15']").first.press("Enter")
    assert page.locator("details.game[open]").count() == 2
    page.go_back()
    page.locator("#overview").wait_for()
    assert not page.locator("#receipt").is_visible()


def test_hostile_words_are_shown_as_words(visit):
    page = visit()
    page.locator("#listing tbody a", has_text="bad").click()
    page.locator("article").wait_for()
    shown = text_of(page.locator("article .problem .rich"))
    assert "<script>document.title='owned'</script></style>" in shown
    assert "⟦U+202E⟧gnihsif⟦U+2066⟧ javascript:alert(1)" in shown
    page.locator(".bracket [data-game]").first.click()
    assert "onerror=alert(1)" in text_of(page.locator("details.game[open] .reply"))
    assert page.title() == "run · caps report"
    assert page.locator("article script, article img, article style").count() == 0


def test_receipts_of_a_large_run_come_from_the_folder_beside_it(visit):
    page = visit("large.html")
    page.get_by_role("link", name="case 2").click()
    page.locator(".bracket").wait_for()
    assert page.locator("details.game").count() > 10


def test_the_theme_switches_and_a_phone_needs_no_sideways_scrolling(visit):
    page = visit(width=390)
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Switch to the dark theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    for place in ("#", "#case=case%201"):
        go_to(page, place)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_one_case_is_readable_with_scripts_off(visit):
    page = visit("case.html", java_script_enabled=False)
    assert page.locator(".bracket [data-game]").count() >= 12
    page.locator("#g1 > summary").click()
    page.locator("#g1").get_by_text("Prompt and reply", exact=True).click()
    assert len(QUALITY.findall(page.locator("#g1 .fold pre").first.inner_text())) == 2


def test_compared_runs_are_searched_filtered_and_opened_side_by_side(visit):
    page = visit("compared.html")
    assert HOSTILE_NAME in page.locator("h1").inner_text()
    assert len(names(page)) == 4
    page.get_by_role("button", name=re.compile("^different")).click()
    assert 0 < len(names(page)) < 5
    page.get_by_role("button", name="all 4").click()
    page.get_by_label("Find a case").fill("case 2")
    assert names(page) == ["case 2"]
    page.keyboard.press("Escape")
    go_to(page, "#case=case%201&game=2")
    page.locator("#g2[open]").wait_for()
    articles = page.locator("#receipt article")
    assert articles.locator(".run-name").all_inner_texts() == ["Run run", f"Run {HOSTILE_NAME}"]
    assert articles.locator("svg.level").count() >= 2
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert articles.locator(".problem:visible").count() == 1  # the same for all runs
    assert page.locator("main :is(script, img, style)").count() == 0


def test_the_live_page_waits_shows_how_far_the_run_is_and_then_its_cases(folder, browser, axe):
    out, troubles = folder / "live", []
    with serving_live(out) as address, closing(browser.new_page()) as page:
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: request.url.startswith(address) or troubles.append(request.url))
        page.goto(address)
        page.get_by_role("heading", name="Waiting for the run in live").wait_for()
        out.mkdir()
        with ProgressFile(out, 9, what="cases") as progress:
            list(progress.watch([Case(HOSTILE, Problem.of("?"), ())]))
            progress.finish(more=2)
            page.locator("#progress", has_text="2 of 9 cases").wait_for()
            assert "<script>document.title='owned'" in page.locator("#progress").inner_text()
            page.evaluate(axe)
            assert page.evaluate("axe.run().then((found) => found.violations.map((one) => one.id))") == []
        for name in ("rulings.jsonl", "selections.jsonl", "run.json"):
            shutil.copy(folder / "run" / name, out / name)
        page.get_by_role("link", name="case 1").click()
        page.locator(".bracket").wait_for()
        assert page.evaluate(CONTRAST) == []
        assert page.title() == "live · caps report"
    assert troubles == []


@contextmanager
def serving_live(path):
    """Serve the live page of a folder from a thread; the address."""
    loop, started = asyncio.new_event_loop(), Queue()

    async def serve():
        runner = web.AppRunner(LiveReport(path, open_run, poll_seconds=0.05).app(), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, HOST, 0).start()
        ended = asyncio.Event()
        started.put((f"http://{HOST}:{runner.addresses[0][1]}/", ended))
        await ended.wait()
        await runner.cleanup()

    thread = Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    address, ended = started.get(timeout=30)
    yield address
    loop.call_soon_threadsafe(ended.set)
    thread.join()
    loop.close()


@pytest.mark.parametrize(
    ("name", "charts", "tables"), [("diagnosis.html", 5, 2), ("simulation.html", 1, 1), ("study.html", 2, 2)]
)
def test_pictures_and_their_numbers_need_no_script_and_hostile_names_stay_names(visit, name, charts, tables):
    page = visit(name, java_script_enabled=False, width=390)
    folded = page.locator("main details:not([open]) > summary")
    while folded.count():
        folded.first.click()
    assert page.locator("svg.chart:visible").count() == charts
    assert page.locator("section table:visible").count() == tables
    assert "⟦U+202E⟧" in page.locator("section table").first.inner_text()
    assert page.locator("main script, main img, main style").count() == 0
    assert page.title().endswith("caps report")
    assert page.locator("html").evaluate("(root) => root.scrollWidth <= innerWidth")


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    """The rules of axe-core as a script, fetched with npm where that can be done."""
    place = tmp_path_factory.mktemp("axe")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm, so axe-core cannot be fetched")
    try:
        subprocess.run([npm, "pack", "axe-core@4"], cwd=place, check=True, capture_output=True, timeout=20)
    except (subprocess.SubprocessError, OSError):
        pytest.skip("axe-core cannot be fetched from here")
    with tarfile.open(next(place.glob("*.tgz"))) as packed:
        return packed.extractfile("package/axe.min.js").read().decode()


def test_axe_finds_nothing_to_complain_of(visit, axe):
    for name, place in PLACES:
        page = visit(name)
        go_to(page, place)
        page.evaluate("document.querySelectorAll('details.fold, #g1').forEach((one) => { one.open = true; })")
        page.evaluate(axe)
        found = page.evaluate("axe.run().then((result) => result.violations.map((one) => one.id))")
        assert found == []


CONTRAST = """() => {
  const light = (text) => {
    const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255).map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const ground = (node) => { for (; node; node = node.parentElement) { const c = getComputedStyle(node).backgroundColor; if (!c.endsWith(", 0)")) return c; } return "rgb(255,255,255)"; };
  const worst = [];
  for (const node of document.querySelectorAll("main *:not(svg *), header *, footer *")) {
    if (![...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()) || !node.checkVisibility() || node.disabled) continue;
    const [a, b] = [light(getComputedStyle(node).color), light(ground(node))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) worst.push(`${node.tagName} ${node.textContent.slice(0, 30)} ${((a + .05) / (b + .05)).toFixed(2)}`);
  }
  return worst;
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_landmarks_names_and_contrast_serve_everyone(visit, theme):
    for name, place in PLACES:
        page = visit(name)
        if theme == "dark":
            page.locator("#theme").click()
        go_to(page, place)
        assert (
            page.locator("main").count()
            == page.locator("header").count()
            == page.locator("footer").count()
            == 1
        )
        assert page.evaluate(
            "document.querySelectorAll('[id]').length === new Set([...document.querySelectorAll('[id]')].map((n) => n.id)).size"
        )
        nameless = page.evaluate(
            "[...document.querySelectorAll('button, a, input, summary, [role=region]')].filter((n) => n.checkVisibility()"
            " && !(n.getAttribute('aria-label') || n.textContent.trim())).map((n) => n.outerHTML)"
        )
        assert nameless == []
        assert page.evaluate(CONTRAST) == []
