"""The options of `rlbench report`; see `harness.cli.flags`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportOptions:
    """What is made of the runs."""

    out: Annotated[Path | None, "The file. [default: rlbench-report.html, or .pdf]"] = None
    format: Annotated[str, "html; or pdf, which Chromium prints."] = "html"
    title: Annotated[str | None, "Title of the page. [default: what was compared]"] = None
    open: Annotated[bool, "Open the file, or the live page, in a browser."] = False
    live: Annotated[bool, "Serve a page of the newest sweep on this machine that renews itself, until Ctrl-C."] = False
    history: Annotated[Path | None, "A history to draw as well, as `rlbench history` keeps it."] = None
