"""The page that `rlbench report --live` serves while a sweep runs: what it says, and what outlives its loading anew."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page

from rlbench.harness.live.state import LIVE_FILE, LiveSweep, write_live
from rlbench.results.records import store
from tests.browser.conftest import Opened, open_page, rlbench, violations, wait_drawn

NUM_CELLS = 6
LIMIT_MS = 120_000


class Sweep:
    """The folder of a sweep that this process runs, as far as anybody can see; its last cell has not ended."""

    def __init__(self, whole: Path, folder: Path) -> None:
        """Copies a whole sweep."""
        *ended, last = store.run_folders(whole)
        self.folder, self._last = folder, last
        folder.mkdir()
        write_live(folder, LiveSweep.begins(NUM_CELLS, len(ended)).model_copy(update={"phase": "runs"}))
        for path in (*ended, whole / "sweep.json"):
            (shutil.copytree if path.is_dir() else shutil.copy)(path, folder / path.name)

    def end_last(self) -> None:
        """Its last run ends."""
        partial = self.folder / f".partial-{self._last.name}"
        shutil.copytree(self._last, partial)
        store.publish(partial, self.folder / self._last.name)

    def end(self) -> None:
        """Nobody runs it any more."""
        (self.folder / LIVE_FILE).unlink()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole sweep of two systems."""
    folder = tmp_path_factory.mktemp("whole")
    rlbench("predict", "--systems", "sync,ver", "--gpus", "1,2,4", "--out", "runs", cwd=folder)
    (sweep,) = (folder / "runs").iterdir()
    return sweep


@pytest.fixture
def sweep(whole: Path, tmp_path: Path) -> Sweep:
    """One of whose cells the last is running."""
    return Sweep(whole, tmp_path / whole.name)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serves the page of a sweep; gives its address."""
    main = "import sys; from rlbench.harness.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", main, "report", "--live", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            found = re.match(r"(http://\S+) shows ", server.stdout.readline())
            assert found
            yield found[1]
        finally:
            server.kill()


@pytest.fixture
def opened(sweep: Sweep, chromium: Browser) -> Iterator[Opened]:
    """Its page, on a desk."""
    with served(sweep.folder) as address:
        opened = open_page(chromium, address, 1400, "light")
        yield opened
        assert opened.errors == []
        opened.page.context.close()


def says(page: Page, text: str) -> None:
    """Waits until the line below the title says so."""
    page.locator("#live", has_text=text).wait_for(timeout=LIMIT_MS)


def renewed(page: Page, num_runs: int) -> None:
    """Waits until the page is of so many runs, and drawn."""
    page.locator(f'#live[data-runs="{num_runs}"]').wait_for(timeout=LIMIT_MS)
    wait_drawn(page)


def system(page: Page, name: str) -> Locator:
    """The button that narrows the page to a system."""
    return page.locator(f'fieldset[data-facet="system"] button[data-value="{name}"]')


def fold(page: Page, title: str) -> Locator:
    """What is folded below that title first."""
    return page.locator("details", has=page.locator(f'> summary:text-matches("^{title}")')).first


def check_the_page_renews_itself_and_says_how_far_the_sweep_is(sweep: Sweep, opened: Opened) -> None:
    """Partial until the last cell has ended; over when nobody runs it; and going on when somebody takes it up again."""
    page, partial = opened.page, f"5 of the {NUM_CELLS} cells of sweep {sweep.folder.name} have a run"
    says(page, f"5 of {NUM_CELLS} cells")
    assert partial in page.inner_text("main")
    assert page.locator("#live progress").is_visible()
    sweep.end_last()
    renewed(page, NUM_CELLS)
    assert partial not in page.inner_text("main")
    sweep.end()
    says(page, f"the sweep is over: {NUM_CELLS} of {NUM_CELLS} cells finished")
    assert page.locator("#live progress").is_hidden()
    write_live(sweep.folder, LiveSweep.begins(NUM_CELLS))
    says(page, "starting")


def check_what_was_chosen_and_folded_is_kept(sweep: Sweep, opened: Opened) -> None:
    """Filters, what was opened, what was folded, and the colours are as before the page loaded itself anew."""
    page = opened.page
    system(page, "ver").click()
    assert fold(page, "All runs").get_attribute("open") is not None
    fold(page, "All runs").locator("> summary").click()
    fold(page, "Each run by itself").locator("> summary").click()
    page.click("#theme")
    sweep.end_last()
    renewed(page, NUM_CELLS)
    assert [system(page, name).get_attribute("aria-pressed") for name in ("sync", "ver")] == ["false", "true"]
    shown = page.eval_on_selector_all(
        "tr[data-system]:not(.filtered-out)", "all => [...new Set(all.map(row => row.dataset.system))]"
    )
    assert shown == ["ver"]
    assert fold(page, "All runs").get_attribute("open") is None
    assert fold(page, "Each run by itself").get_attribute("open") is not None
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])
def check_axe_finds_nothing_on_the_live_page(sweep: Sweep, chromium: Browser, width: int, scheme: str) -> None:
    """While it says how far the sweep is, with a bar."""
    with served(sweep.folder) as address:
        page = open_page(chromium, address, width, scheme).page
        says(page, f"5 of {NUM_CELLS} cells")
        assert violations(page) == []
        page.context.close()
