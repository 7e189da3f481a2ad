"""Prints a page as PDF, by a Chromium, Chrome or Edge of this machine; nothing is downloaded.

The browser is a child process with a folder of its own for its profile. It ends by itself when it has printed; it is
ended after `LIMIT_S`, and with its whole process group.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from rlbench.results.reading.outputs import output

BROWSERS = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
    *("microsoft-edge", "microsoft-edge-stable"),
)
LIMIT_S = 120.0
DRAWING_MS = 30_000
"""Virtual time that the page has to draw its charts; the browser does not wait for it."""
QUIET = (
    *("--headless", "--disable-gpu", "--no-first-run", "--disable-sync", "--disable-background-networking"),
    *("--disable-component-update", "--disable-extensions", "--no-pdf-header-footer"),
)


def find_browser() -> str:
    """The path of a browser that can print. Raises ValueError if there is none."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise ValueError(
            f"--format pdf: needs a browser that prints, one of {', '.join(BROWSERS[:4])}, on PATH; install one, or "
            "print the HTML report from your browser"
        )
    return found


def print_pdf(browser: str, page: Path, out: Path) -> None:
    """Prints a page into a file. Raises ValueError if the browser fails, or the file cannot be written."""
    with tempfile.TemporaryDirectory(prefix="rlbench-browser-", ignore_cleanup_errors=True) as folder:
        printed = Path(folder) / "report.pdf"
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # which Chromium's does not work for
        words = [
            *(browser, *QUIET, *sandbox, f"--user-data-dir={folder}/profile", f"--print-to-pdf={printed}"),
            *(f"--virtual-time-budget={DRAWING_MS}", page.resolve().as_uri()),
        ]
        said = _run(words)
        if not printed.exists() or not printed.stat().st_size:
            raise ValueError(
                f"--format pdf: {browser} printed nothing: {' '.join(said.split())[-200:] or 'no message'}"
            )
        try:
            with output(out) as file:
                file.write(printed.read_bytes())
        except OSError as problem:
            raise ValueError(
                f"{out}: cannot be written ({problem.strerror or problem}); choose another --out"
            ) from None


def _run(words: list[str]) -> str:
    """Runs the browser and returns what it said on stderr; ends it and what it started, however this ends."""
    with subprocess.Popen(  # noqa: S603  a browser of the user's
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, process_group=0
    ) as child:
        try:
            _, said = child.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            raise ValueError(f"--format pdf: {words[0]} did not end within {LIMIT_S:.0f} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    return said
