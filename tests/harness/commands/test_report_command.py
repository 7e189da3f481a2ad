"""`rlbench report`: its options, PDF by a browser, and the page that is served."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlbench.harness.commands.read_runs import SummaryOptions
from rlbench.harness.commands.report import live, printing
from rlbench.harness.commands.report.live import LivePage, make_server
from rlbench.harness.plan.options import RunOptions
from rlbench.harness.plan.planning import plan_with_skipped
from rlbench.harness.plan.request import complete
from rlbench.harness.run.sweep import Sweep
from tests.harness.command import QUICK, RLBENCH, assert_refused, call
from tests.results.made_records import make_record, write_run_folder

BROWSER = """#!/bin/sh
for word in "$@"; do
    case "$word" in
    --print-to-pdf=*) {does} ;;
    file://*) cp "${{word#file://}}" {seen} ;;
    esac
done
"""


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder of two runs."""
    for gpus in (1, 8):
        write_run_folder(tmp_path / "runs" / "sweep-1", make_record("ver", gpus), rates=[100.0 * gpus] * 12)
    return tmp_path / "runs"


def plan(folder: Path, *systems: str) -> Sweep:
    """A sweep of so many cells that nobody has run."""
    asked = RunOptions(systems=",".join(systems), scenario="emulated/open-fridge", device="emulated")
    cells, _ = plan_with_skipped(complete(asked, elsewhere=False)[0], lambda _: None)
    return Sweep.create(folder, cells, ["rlbench", "run"], None)


def run_of(sweep: Sweep, number: int) -> None:
    """The run of a cell has ended."""
    cell = sweep.cells[number]
    record = make_record(cell.system, 1, id=f"{number + 1:03d}-{cell.system}", sweep=sweep.id)
    hashed = record.model_copy(update={"cell": record.cell.model_copy(update={"hash": cell.hash()})})
    write_run_folder(sweep.folder, hashed, rates=[100.0] * 12)


def test_title_and_file(runs: Path, tmp_path: Path) -> None:
    """The page has the title that was asked for, or says what was compared; the first line printed is its path."""
    out = tmp_path / "page.html"
    said = call("report", str(runs), "--out", str(out), "--title", "Before <the> change")
    assert (said.code, said.out.splitlines()[0]) == (0, str(out))
    assert "<title>Before &lt;the&gt; change</title>" in out.read_text(encoding="utf-8")
    call("report", str(runs), "--out", str(out))
    assert "<title>ver on open-fridge, 1 to 8 GPUs, emulated</title>" in out.read_text(encoding="utf-8")


def test_open_shows_the_file_in_a_browser(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for by its whole address."""
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    call("report", str(runs), "--out", str(tmp_path / "page.html"), "--open")
    assert opened == [(tmp_path / "page.html").as_uri()]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--format", "docx"], "--format docx: unknown; known: html, pdf"),
        (
            ["--live", "--out", "x.html"],
            "--live: serves a page and writes none; leave --format, --out and --history out",
        ),
        (["--live", "--format", "pdf"], "--live: serves a page and writes none"),
        (["--live", "a", "b"], "--live: shows one sweep, and 2 folders are named; name one"),
        (["--history", "missing.jsonl"], "--history missing.jsonl: is not there; `rlbench history RUNS` makes one"),
    ],
)
def test_what_cannot_be_is_refused(runs: Path, options: list[str], said: str) -> None:
    """In a line."""
    assert_refused(call("report", *([] if "a" in options else [str(runs)]), *options), said)


def browser(folder: Path, does: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A browser that does this when it is asked to print; what it was given to print is kept at the path."""
    (folder / "bin").mkdir()
    program = folder / "bin" / "chromium"
    program.write_text(BROWSER.format(does=does, seen=folder / "seen.html"), encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return folder / "seen.html"


def test_pdf_is_what_a_browser_prints(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The browser gets the page, and its file appears under the name that was asked for; nothing else is left."""
    seen = browser(tmp_path, 'printf %%PDF > "${word#--print-to-pdf=}"', monkeypatch)
    out = tmp_path / "out" / "report.pdf"
    out.parent.mkdir()
    said = call("report", str(runs), "--format", "pdf", "--out", str(out))
    assert (said.code, said.out.splitlines()[0]) == (0, str(out)), said.err
    assert out.read_bytes() == b"%PDF"
    assert "<title>ver on open-fridge" in seen.read_text(encoding="utf-8")
    assert list(out.parent.iterdir()) == [out]


def test_a_browser_that_prints_nothing(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it said stands in the line; so it does where there is no browser, or it does not end."""
    browser(tmp_path, "echo no display >&2", monkeypatch)
    asked = ("report", str(runs), "--format", "pdf", "--out", str(tmp_path / "r.pdf"))
    assert_refused(call(*asked), "printed nothing: no display")
    (tmp_path / "bin" / "chromium").write_text("#!/bin/sh\nsleep 1000 & wait\n", encoding="utf-8")
    monkeypatch.setattr(printing, "LIMIT_S", 0.2)
    assert_refused(call(*asked), "did not end within 0 s")
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert_refused(call(*asked), "--format pdf: needs a browser that prints, one of chromium, ")
    assert not (tmp_path / "r.pdf").exists()


def test_a_partial_sweep_says_so(tmp_path: Path) -> None:
    """Page and JSON say how many of the planned cells have a run; a whole sweep, and a run that is named, do not."""
    sweep = plan(tmp_path / "runs", "sync", "ver")
    run_of(sweep, 0)
    text = f"1 of the 2 cells of sweep {sweep.folder.name} have a run"

    def findings(folder: Path) -> list[tuple[str, str]]:
        document = json.loads(call("export", str(folder), "--format", "json").out)
        return [(each["severity"], each["text"]) for each in document["findings"] if each["severity"] == "partial"]

    assert findings(tmp_path / "runs") == [("partial", text)]
    call("report", str(sweep.folder), "--out", str(tmp_path / "page.html"))
    assert text in (tmp_path / "page.html").read_text(encoding="utf-8")
    (run,) = (path.parent for path in sweep.folder.rglob("run.json"))
    assert findings(run) == []
    run_of(sweep, 1)
    assert findings(tmp_path / "runs") == []


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Sweep, int]]:
    """A sweep of two cells whose page is served, and the port."""
    monkeypatch.setattr(live, "PORT", 0)
    sweep = plan(tmp_path / "runs", "sync", "ver")
    page = LivePage(sweep.folder, SummaryOptions(), title=None, command=["rlbench"])
    with make_server(page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield sweep, server.server_address[1]
        server.shutdown()
        thread.join()


def ask(port: int, path: str, host: str | None = None) -> tuple[int, str, Any]:
    """Status, content and headers."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer.headers


def test_the_served_page_has_what_has_ended(served: tuple[Sweep, int]) -> None:
    """The page is of the runs so far, and what it asks for says how many there are, so that it loads itself anew."""
    sweep, port = served
    status, page, headers = ask(port, "/")
    assert (status, headers["Cache-Control"]) == (200, "no-store")
    assert 'id="live" role="status" data-runs="0"' in page
    assert "connect-src &#39;self&#39;" in page
    run_of(sweep, 0)
    state = json.loads(ask(port, "/state")[1])
    assert state["runs"] == 1
    page = ask(port, "/")[1]
    assert 'data-runs="1"' in page
    assert "<title>sync on open-fridge" in page


def test_only_this_machine_is_answered(served: tuple[Sweep, int]) -> None:
    """A request by another name, as a web page's that has its name lead here, is refused; so are other paths."""
    _, port = served
    assert ask(port, "/state", host=f"evil.example:{port}")[0] == 403
    assert ask(port, "/state", host=f"localhost:{port}")[0] == 200
    assert ask(port, "/../../etc/passwd")[0] == 404


def test_a_folder_that_goes_is_said(served: tuple[Sweep, int], tmp_path: Path) -> None:
    """The server goes on, and says what is the matter."""
    sweep, port = served
    sweep.folder.rename(tmp_path / "elsewhere")
    status, text, _ = ask(port, "/")
    assert (status, "Traceback" in text) == (410, False)


def test_live_beside_a_real_sweep(tmp_path: Path) -> None:
    """It names its address, tells of the running cell, and ends with Ctrl-C; the sweep does not notice."""
    run = [str(RLBENCH), "run", "--systems", "sync", *QUICK, "--seconds", "30"]
    with (
        subprocess.Popen(run, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as sweep,
        subprocess.Popen(
            ["sh", "-c", f"until ls rlbench-runs/*/live.json; do sleep 0.1; done >&2; exec {RLBENCH} report --live"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as shown,
    ):
        try:
            assert shown.stdout is not None
            found = re.match(r"http://127\.0\.0\.1:(\d+)/ shows rlbench-runs", shown.stdout.readline())
            assert found
            deadline = time.monotonic() + 60
            while "iteration" not in (state := ask(int(found[1]), "/state")[1]):
                assert time.monotonic() < deadline, state
                time.sleep(0.2)
            shown.send_signal(signal.SIGINT)
            assert shown.wait(20) == 0
            assert sweep.poll() is None
        finally:
            shown.kill()
            sweep.send_signal(signal.SIGINT)
            sweep.wait(60)
