"""`rlbench report --live`: serves the report of a sweep that runs, from what is in its folder, on this machine alone.

The page asks every two seconds how far the sweep is, and loads itself anew when another run has ended. One thread for
each request; a lock lets one at a time read the folder and make the page, which is kept until another run ends. Nothing
is written, and nothing waits for the sweep: if its runner dies, the page says so. Requests that name another host than
this machine are refused, so that no web page can read it by a name of its own that leads here.
"""

from __future__ import annotations

import json
import sys
import threading
import webbrowser
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rlbench.harness.commands.read_runs import Found, SummaryOptions, partial
from rlbench.harness.live import view
from rlbench.harness.live.expected import in_words
from rlbench.harness.live.state import LIVE_FILE
from rlbench.harness.run.sweep_state import SweepReader, SweepState, newest
from rlbench.results.reading.untrusted import visible

HOST, PORT = "127.0.0.1", 8787
"""Where the page is served, if the port is free."""


class LivePage:
    """A sweep, as a page and as a line that says how far it is."""

    def __init__(self, folder: Path, asked: SummaryOptions, *, title: str | None, command: Sequence[str]) -> None:
        """`folder` holds the plan. Raises ValueError where that cannot be read."""
        self._reader = SweepReader(folder)
        self._asked, self._title, self._command = asked, title, command
        self._lock = threading.Lock()
        self._page = ""
        self._made_of: tuple[int, int] | None = None

    def state(self) -> dict[str, Any]:
        """What the page asks for: a text, the share that is done, whether it is over, and how many runs have ended."""
        with self._lock:
            state = self._reader.look()
        live = state.live
        return {
            "text": visible(_told(state)),
            "fraction": None
            if live is None
            else min(1.0, (live.num_ended + _of_running(state)) / max(1, live.num_cells)),
            "over": state.has_ended,
            "runs": len(state.runs),
        }

    def page(self) -> str:
        """The report of the runs that have ended."""
        from rlbench.reports.page.html import render

        with self._lock:
            state = self._reader.look()
            made_of = (len(state.runs), len(state.unreadable))
            if made_of != self._made_of:
                runs = list(state.runs)
                found = Found(runs=runs, unreadable=list(state.unreadable), partial=list(partial(runs)))
                title = self._title or (None if state.runs else f"{state.folder.name}: no run has ended yet")
                self._page = render(
                    found.summary(self._asked),
                    found.folders(),
                    title=title,
                    command=self._command,
                    live=len(state.runs),
                )
                self._made_of = made_of
            return self._page


def _of_running(state: SweepState) -> float:
    """The shares of the running cells that are done, together."""
    return sum(cell.fraction for cell in state.live.running) if state.live is not None else 0.0


def _told(state: SweepState) -> str:
    """How far the sweep is, in a line."""
    num_cells = len(state.labels)
    if state.phase == "over":
        return f"the sweep is over: {state.num_finished} of {num_cells} cells finished"
    if state.live is None:
        return f"{LIVE_FILE} cannot be read: {state.num_finished} of {num_cells} cells finished"
    if state.phase == "gone":
        pid = state.live.writer.pid
        return f"process {pid}, which ran the sweep, is gone: {state.num_finished} of {num_cells} cells finished"
    said = [view.about_sweep(state.live), *(view.line(cell, num_cells) for cell in state.live.running)]
    if state.phase == "quiet":
        said.append(f"no news for {in_words(state.quiet_s)}")
    return " · ".join(said)


class _Handler(BaseHTTPRequestHandler):
    """Answers `/` and `/state`."""

    server: _Server

    def do_GET(self) -> None:
        if self.headers.get("Host", "").rpartition(":")[0] not in {HOST, "localhost"}:
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        try:
            if self.path == "/":
                self._answer("text/html", self.server.live.page())
            elif self.path == "/state":
                self._answer("application/json", json.dumps(self.server.live.state()))
            else:
                self.send_error(HTTPStatus.NOT_FOUND)
        except ValueError as problem:  # the folder is gone
            self._answer("text/plain", str(problem), HTTPStatus.GONE)
        except ConnectionError:  # whoever asked has gone
            return

    def _answer(self, kind: str, text: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the library's name
        """Says nothing of requests."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, live: LivePage, port: int) -> None:
        self.live = live
        super().__init__((HOST, port), _Handler)


def make_server(live: LivePage) -> _Server:
    """A server on `PORT`, or on any free port where that is taken."""
    try:
        return _Server(live, PORT)
    except OSError:
        return _Server(live, 0)


def open_in_browser(address: str) -> None:
    """Opens an address in the user's browser, or says that there is none."""
    if not webbrowser.open(address):
        sys.stderr.write(f"--open: no browser was found; open {address}\n")


def serve(folder: Path, asked: SummaryOptions, *, title: str | None, command: Sequence[str], open_it: bool) -> None:
    """Serves the page of a sweep, or of the newest in a folder, until Ctrl-C.

    Raises ValueError where there is no sweep.
    """
    sweep = newest(folder)
    with make_server(LivePage(sweep, asked, title=title, command=command)) as server:
        address = f"http://{HOST}:{server.server_address[1]}/"
        sys.stdout.write(f"{address} shows {visible(str(sweep))}; Ctrl-C ends it\n")
        sys.stdout.flush()
        try:
            if open_it:  # in a thread: some browsers return when they are closed
                threading.Thread(target=open_in_browser, args=(address,), daemon=True).start()
            server.serve_forever()
        except KeyboardInterrupt:
            if sys.stderr.isatty():  # behind the terminal's ^C
                sys.stderr.write("\n")
