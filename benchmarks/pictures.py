"""Takes the pictures in docs/pictures: runs a sweep on emulated GPUs, and photographs its report in Chromium.

`nox -s pictures` runs this. One process at a time; a command that fails ends it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
SWEEP = (
    *("run", "--systems", "sync,ddppo,ver", "--gpus", "1,4,8"),
    *("--scenario", "emulated/open-fridge", "--time-scale", "1", "--seconds", "60"),
)
WIDTH, HEIGHT = 1200, 1040
SECONDS = 120


def main() -> None:
    """Runs the sweep in a temporary folder, and writes `report.png`."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium: not installed; apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        for words in (SWEEP, ("report",)):
            subprocess.run([sys.executable, "-P", "-m", "rlbench", *words], check=True, cwd=folder)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto((Path(folder) / "rlbench-report.html").as_uri())
        for _ in range(SECONDS * 10):  # the page's policy forbids Playwright's own way to wait
            if page.evaluate("Object.values(window.__rlbenchCharts).every(Boolean)"):
                break
            page.wait_for_timeout(100)
        else:
            sys.exit(f"the report's charts were not drawn within {SECONDS} s")
        page.screenshot(path=PICTURES / "report.png")
        browser.close()


if __name__ == "__main__":
    main()
