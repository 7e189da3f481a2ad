"""What `rlbench report` does, in steps."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rlbench.harness.commands import REPORT_FORMATS
from rlbench.harness.commands.read_runs import Found, SummaryOptions, find, newest_sweep
from rlbench.harness.commands.report.options import ReportOptions
from rlbench.harness.commands.report.printing import find_browser, print_pdf
from rlbench.results.summary.document import Summary


def report(
    folders: Sequence[Path], default: Path, options: ReportOptions, asked: SummaryOptions, command: Sequence[str]
) -> None:
    """Writes the report of some folders, or of the newest sweep in `default`; prints where it is, and the answers.

    Raises ValueError for missing runs, an unknown reference, a damaged history and a file that cannot be written.
    """
    if options.live:
        _serve(folders, default, options, asked, command)
        return
    out = options.out or Path(f"rlbench-report.{options.format}")
    summary = write_page(find(folders or [newest_sweep(default)]), out, options, asked, command)
    sys.stdout.writelines(f"{line}\n" for line in (out, *summary.answers))
    if options.open:
        from rlbench.harness.commands.report.live import open_in_browser

        open_in_browser(out.resolve().as_uri())


def write_page(
    found: Found, out: Path, options: ReportOptions, asked: SummaryOptions, command: Sequence[str]
) -> Summary:
    """Writes the report of the runs that were found, as HTML or PDF; returns what it says.

    Raises ValueError for an unknown reference, a damaged history, a file that cannot be written, and a PDF without a
    browser.
    """
    from rlbench.reports.page.html import write_report
    from rlbench.results.verdicts import history

    if options.format not in REPORT_FORMATS:
        raise ValueError(f"--format {options.format}: unknown; known: {', '.join(REPORT_FORMATS)}")
    browser = find_browser() if options.format == "pdf" else None
    summary = found.summary(asked)
    if options.history is not None:
        if not options.history.exists():
            raise ValueError(f"--history {options.history}: is not there; `rlbench history RUNS` makes one")
        summary = summary.model_copy(update={"history": history.series_of(history.read(options.history))})
    if browser is None:
        write_report(summary, found.folders(), out, title=options.title, command=command)
    else:
        with tempfile.TemporaryDirectory(prefix="rlbench-pdf-") as folder:
            page = Path(folder) / "report.html"
            write_report(summary, found.folders(), page, title=options.title, command=command)
            print_pdf(browser, page, out)
    return summary


def _serve(
    folders: Sequence[Path], default: Path, options: ReportOptions, asked: SummaryOptions, command: Sequence[str]
) -> None:
    from rlbench.harness.commands.report.live import serve

    if options.format != "html" or options.out is not None or options.history is not None:
        raise ValueError("--live: serves a page and writes none; leave --format, --out and --history out")
    if len(folders) > 1:
        raise ValueError(f"--live: shows one sweep, and {len(folders)} folders are named; name one")
    serve(folders[0] if folders else default, asked, title=options.title, command=command, open_it=options.open)
