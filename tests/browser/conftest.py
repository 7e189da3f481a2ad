from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.results.made_records import make_record, write_run_folder

AXE = files("axe_playwright_python").joinpath("axe.min.js")
HOSTILE = "<script>alert(1)</script>"
"""The name of a system of somebody's."""
DAY = "2026-01-02T00:00:00+00:00"


def rlbench(*options: str, cwd: Path) -> str:
    """What the command printed; it must succeed."""
    command = [
        sys.executable,
        "-c",
        "import sys; from rlbench.harness.cli.main import main; sys.exit(main())",
        *options,
    ]
    done = subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of sweeps: real runs that learn, runs on emulated GPUs, predicted ones, and all that can go wrong."""
    folder = tmp_path_factory.mktemp("report")
    emulated = (
        "run --systems sync,ver,ver:preempt=never --gpus 1,2 --workload homogeneous,heterogeneous "
        "--device emulated --time-scale 0.1 --iterations 4 --out emulated"
    )
    predicted = "predict --systems sync,ver --gpus 1,2,4 --out predicted"
    real = "run --systems sync,ddppo --scenario pointnav --gpus 1 --device cpu --seeds 0,1 --env-steps 40000 --out real"
    # Works are in the order of their sweeps' names, which begin with the second: `real` is the last.
    chains = [(emulated,), (predicted, real)]
    with ThreadPoolExecutor() as side_by_side:  # no figure is looked at for its size
        list(side_by_side.map(lambda chain: [rlbench(*each.split(), cwd=folder) for each in chain], chains))
    sweep = folder / "wrong" / "sweep-1"
    write_run_folder(sweep, make_record(HOSTILE, id="hostile", started_at=DAY), rates=[100.0] * 12)
    write_run_folder(
        sweep, make_record(id="failed", steps_per_s=None, status="failed", reason=f"rank 1: {HOSTILE} & more")
    )
    write_run_folder(sweep, make_record(gpus=2, id="late", steps_per_s=None, status="timed-out", reason="after 5 s"))
    newer = write_run_folder(sweep, make_record(gpus=4, id="newer")) / "run.json"
    newer.write_text(json.dumps(json.loads(newer.read_text()) | {"schema_version": 99}))
    (sweep / "foreign").mkdir()
    (sweep / "foreign" / "run.json").write_text('{"my": "own file"}')
    (sweep / ".partial-killed").mkdir()
    return folder


SWEEPS = ("emulated", "real", "predicted", "wrong")


@pytest.fixture(scope="session")
def report(runs: Path) -> Path:
    """The report of all of them."""
    rlbench("report", *SWEEPS, "--out", "report.html", cwd=runs)
    return runs / "report.html"


@pytest.fixture(scope="session")
def exported(runs: Path) -> dict[str, object]:
    """The same as JSON."""
    document: dict[str, object] = json.loads(rlbench("export", *SWEEPS, "--format", "json", cwd=runs))
    return document


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium."""
    path = shutil.which("chromium")
    assert path, "chromium: not installed; apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass(kw_only=True, slots=True)
class Opened:
    """A page, and what it did."""

    page: Page
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Of the console and of scripts."""
    dialogs: list[str] = field(default_factory=list)


def open_report(chromium: Browser, report: Path, width: int, scheme: str, height: int = 900) -> Opened:
    """Opens a report with the network off, and waits until every chart has been drawn."""
    return open_page(chromium, report.as_uri(), width, scheme, height, offline=True)


def open_page(
    chromium: Browser, address: str, width: int, scheme: str, height: int = 900, *, offline: bool = False
) -> Opened:
    """Opens a page, and waits until every chart has been drawn."""
    context = chromium.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        offline=offline,
        accept_downloads=True,
    )
    opened = Opened(page=context.new_page())
    opened.page.on("request", lambda request: opened.requests.append(request.url))
    opened.page.on(
        "console", lambda said: opened.errors.append(said.text) if said.type in {"error", "warning"} else None
    )
    opened.page.on("pageerror", lambda error: opened.errors.append(str(error)))

    def dismiss(dialog: object) -> None:
        opened.dialogs.append(str(dialog))
        dialog.dismiss()  # type: ignore[attr-defined]

    opened.page.on("dialog", dismiss)
    opened.page.goto(address)
    wait_drawn(opened.page)
    return opened


def wait_drawn(page: Page) -> None:
    """Waits until every chart has been drawn."""
    wait_for(page, "Object.values(window.__rlbenchCharts).every(Boolean)")
    wait_for(page, "Object.values(window.__rlbenchTimelines ?? [{}]).every(chart => chart.paintings > 0)")


def violations(page: Page) -> list[Any]:
    """What axe-core finds against WCAG 2.2 A and AA with all unfolded: rule, number of places, the first of them."""
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    page.wait_for_timeout(1000)
    page.evaluate(AXE.read_text(encoding="utf-8") + "; null")
    found: list[Any] = page.evaluate(
        """axe.run(document, {resultTypes: ['violations']}).then(found => found.violations.map(
          each => [each.id, each.nodes.length, each.nodes.slice(0, 3).map(node => node.html.slice(0, 160))]))"""
    )
    return found


def wait_for(page: Page, condition: str, seconds: float = 120) -> None:
    """Waits until a condition holds; the page's policy forbids Playwright's own `wait_for_function`."""
    deadline = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, f"never true: {condition}"
        page.wait_for_timeout(100)


@pytest.fixture(scope="session", params=[(1400, "light"), (1400, "dark"), (390, "light"), (390, "dark")], ids=str)
def opened(request: pytest.FixtureRequest, chromium: Browser, report: Path) -> Iterator[Opened]:
    """The report on a desk and on a phone, light and dark."""
    width, scheme = request.param
    opened = open_report(chromium, report, width, scheme)
    yield opened
    opened.page.context.close()
