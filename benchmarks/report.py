"""The page of a large run in a real browser: its size, when it is usable, how long filters and sorting take.

Plays 10,000 cases of 16 candidates (18 games each) with a scripted judge, writes the page as `caps report`
does, and opens it from disk in Chromium. Run it with `python benchmarks/report.py [--cases 10000]`; a run
that lies in `--folder` already is used again.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright
from rich.console import Console
from rich.table import Table

from caps.cli.report import open_run
from caps.models.base import ConnectOptions, Request
from caps.models.scripted import ScriptedModel
from caps.reports.page import write_page
from caps.reports.report import load_report
from caps.reports.run_page import receipts, run_page

CHROMIUM = "/usr/bin/chromium"
QUALITY = re.compile(r"quality=([0-9]+)")
WORDS = "First this is added to that, then both are divided by what was left over before. " * 8


class Judge(ScriptedModel):
    """Prefers what says the higher quality, and is unsure where that is close."""

    connections = 64

    async def complete(self, request: Request) -> Any:
        done = await super().complete(request)
        self.requests.clear()
        return done


def connect(_: ConnectOptions) -> Judge:
    """The judge as an endpoint named `report:connect`."""
    return Judge(_reply)


def _reply(request: Request) -> str:
    shown = [int(found) for found in QUALITY.findall(request.messages[0].content)]
    if len(shown) != 2:
        return "OK"
    winner, far = "AB"[shown[0] < shown[1]], abs(shown[0] - shown[1]) > 20
    return f"Both were read.\n<winner>{winner}</winner>\n<confidence>{'HIGH' if far else 'LOW'}</confidence>"


def _lines(count: int) -> Iterator[str]:
    for number in range(count):
        level_models = [(place * 7 + number) % 16 for place in range(16)]
        # What seems best is right in two cases of three.
        right = 15 if number % 3 else 14
        candidates = [
            {
                "text": f"quality={level_model * 6} {WORDS} \\boxed{{{level_model}}}",
                "correct": level_model == right,
            }
            for level_model in level_models
        ]
        yield json.dumps(
            {
                "id": f"case {number}",
                "domain": "math",
                "problem": f"What is {number}?",
                "candidates": candidates,
            }
        )


def play(folder: Path, count: int) -> float:
    """A run of so many cases; the seconds it took."""
    started = time.perf_counter()
    cases = folder / "cases.jsonl"
    cases.write_text("\n".join(_lines(count)) + "\n")
    words = ["select", cases, "--model", "scripted", "--base-url", "report:connect", "--quiet"]
    kept = ["--journal", folder / "journal.sqlite", "--out", folder / "run"]
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # where this file is a module
    command = [sys.executable, "-m", "caps", *words, *kept]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=here)  # noqa: S603
    return time.perf_counter() - started


def write(run: Path) -> tuple[list[Path], float]:
    """The page and the files beside it."""
    started = time.process_time()
    with open_run(run) as run_:
        report = load_report(run_)
        files = write_page(run_page(report), receipts(report), run / "report.html")
    return files, time.process_time() - started


def look(path: Path, opened: dict[str, float]) -> Iterator[tuple[str, float, float]]:
    """What is done with a page, the seconds scripts took for it, and the seconds until it is drawn.

    `opened` receives the seconds until the page can be used, and the megabytes of its scripts' memory.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        clock = page.context.new_cdp_session(page)
        clock.send("Performance.enable")

        def metric(name: str) -> float:
            found = clock.send("Performance.getMetrics")["metrics"]
            return next(one["value"] for one in found if one["name"] == name)

        def scripts() -> float:
            return metric("ScriptDuration")

        def timed(name: str, act: Callable[[], object]) -> tuple[str, float, float]:
            before, started = scripts(), time.perf_counter()
            act()
            page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
            seconds = time.perf_counter() - started
            after = scripts()
            return name, after - before if after > before else after, seconds

        yield timed("open", lambda: page.goto(path.as_uri()))
        opened["seconds"] = page.evaluate(_USABLE) / 1000
        opened["megabytes"] = metric("JSHeapUsedSize") / 1e6
        yield timed("filter: missed", lambda: _click(page, r"^missed"))
        yield timed("filter: all", lambda: _click(page, r"^all"))
        yield timed("next page", lambda: page.get_by_role("button", name="Next rows").click())
        yield timed("sort by tokens", lambda: _click(page, r"^tokens read$"))
        yield timed("sort by name", lambda: _click(page, r"^case$"))
        yield timed("find 'case 77'", lambda: page.get_by_label("Find a case").fill("case 77"))
        yield timed("open a receipt", lambda: _receipt(page))
        browser.close()


_USABLE = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"  # scripts have run


def _click(page: Page, name: str) -> None:
    page.get_by_role("button", name=re.compile(name)).first.click()


def _receipt(page: Page) -> None:
    page.locator("#listing tbody a").first.click()
    page.locator("svg.drawing").first.wait_for()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = asked.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        played = 0.0 if (folder / "run" / "selections.jsonl").exists() else play(folder, asked.cases)
        (page, *beside), wrote = write(folder / "run")
        table = Table("", "scripts, s", "until drawn, s", title=f"the page of {asked.cases:,} cases")
        opened = dict[str, float]()
        for name, script, drawn in look(page, opened):
            table.add_row(name, f"{script:.3f}", f"{drawn:.3f}")
        sizes = page.stat().st_size, sum(one.stat().st_size for one in beside)
    console = Console()
    console.print(table)
    console.print(f"page {sizes[0] / 1e6:.1f} MB; {len(beside)} files beside it, {sizes[1] / 1e6:.0f} MB")
    console.print(
        f"usable {opened['seconds']:.2f} s after it was opened, {opened['megabytes']:.0f} MB of script memory"
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    console.print(f"written with at most {peak:.0f} MB of memory")
    console.print(f"played in {played:.0f} s, written in {wrote:.0f} s of processor time")


if __name__ == "__main__":
    main()
