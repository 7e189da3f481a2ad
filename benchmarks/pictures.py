"""Takes the pictures in docs/pictures, of a sweep on emulated GPUs: its terminal, and its report.

It runs the sweep in a terminal, which it records as `terminal.svg`, and photographs the report in Chromium as
`report.png`. `nox -s pictures` runs this; it needs Debian's packages chromium and tmux. One process at a time; a
command that fails ends it, and the terminal with it.
"""

from __future__ import annotations

import io
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
SWEEP = (
    *("rlbench", "run", "--systems", "sync,ddppo,ver", "--gpus", "1,2,4,8", "--workload", "heterogeneous"),
    *("--device", "emulated", "--seconds", "30"),
)
WIDTH, HEIGHT = 1400, 900
COLUMNS, LINES = 100, 40
SECONDS, SWEEP_SECONDS = 120, 1200
SHOWN_AT = "[4/12]"
"""The cell during which the live display is recorded."""
FONTS = re.compile(r"@font-face \{.*?\}", re.DOTALL)
"""What an SVG of rich's would load from elsewhere."""


def main() -> None:
    """Runs the sweep in a temporary folder, and writes the pictures."""
    for program in ("chromium", "tmux"):
        if shutil.which(program) is None:
            sys.exit(f"{program}: not installed; apt-get install {program}")
    with tempfile.TemporaryDirectory() as folder:
        screens = recorded(Path(folder))
        (PICTURES / "terminal.svg").write_text(as_svg(screens), encoding="utf-8")
        subprocess.run([sys.executable, "-P", "-m", "rlbench", "report"], check=True, cwd=folder)
        photograph(Path(folder) / "rlbench-report.html")


@contextmanager
def terminal(folder: Path) -> Iterator[str]:
    """A terminal of tmux's in which the sweep runs; its name."""
    name = f"rlbench-pictures-{folder.name}"
    command = f"{shlex.join(SWEEP)}; echo ended; sleep 60"
    size = ["-x", str(COLUMNS), "-y", str(LINES)]
    subprocess.run(["tmux", "new-session", "-d", "-s", name, *size, "-c", str(folder), command], check=True)
    try:
        yield name
    finally:
        subprocess.run(["tmux", "kill-session", "-t", name], check=False, stderr=subprocess.DEVNULL)


def recorded(folder: Path) -> list[str]:
    """What the terminal shows while a cell runs, and in the end, with its colours."""
    with terminal(folder) as name:
        return [shown(name, SHOWN_AT, "steps/s so far"), shown(name, "\nended")]


def shown(name: str, *texts: str) -> str:
    """The screen, once it has all of these texts."""
    deadline = time.monotonic() + SWEEP_SECONDS
    while time.monotonic() < deadline:
        capture = ["tmux", "capture-pane", "-p", "-e", "-t", name]
        screen = subprocess.run(capture, check=True, capture_output=True, text=True).stdout
        if all(text in Text.from_ansi(screen).plain for text in texts):
            return screen.partition("\nended")[0].rstrip()
        time.sleep(1)
    sys.exit(f"the terminal did not show {texts} within {SWEEP_SECONDS} s")


def as_svg(screens: list[str]) -> str:
    """The command, and below it one screen after the other; it loads no fonts."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {shlex.join(SWEEP)}", style="bold"))
    for number, screen in enumerate(screens):
        console.print(Text.from_ansi(screen))
        if number < len(screens) - 1:
            console.print(Text("\n… and in the end:\n", style="dim"))
    return FONTS.sub("", console.export_svg(title="rlbench run"))


def photograph(page_path: Path) -> None:
    """Writes the first screen of a report."""
    chromium = shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(page_path.as_uri())
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
