"""Checks that our packages are ours, and only then starts one of our programs.

The command's entry point is `main`; `python -P -m rlbench_start harness.launch.nodes.agent` starts another of our
modules, on a machine whose Python path may differ. Nothing of ours is imported before `hidden` has checked.

Our packages have names that others may use too, and Python takes the first of a name on its path. This package has a
name that nobody else uses, so somebody else's package `rlbench` (the robot-learning one) does not matter.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

OURS = ("harness", "systems", "scenarios", "results", "reports")
USAGE = 2
PLANS_ALONE = {"--help", "--dry-run", "--hosts", "--launcher"}
"""Options with which `rlbench run` starts no processes on this machine, or no forked ones."""


def hidden() -> str | None:
    """One line that says what is wrong when Python would import somebody else's package in place of ours; else None.

    Finds packages as `import` does, and imports none. A folder of such a name that is not a package hides nothing:
    Python prefers a package further down the path.
    """
    ours = os.path.realpath(Path(__file__).parents[1])
    for name in OURS:
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):  # `sys.modules` holds something else by this name
            spec = None
        if spec is None or spec.origin is None:
            return f"our package {name!r} is not in {_shown(ours)}; reinstall rlbench"
        place = Path(spec.origin).parent
        kind = "module" if spec.submodule_search_locations is None else "package"
        found = os.path.realpath(place.parent if kind == "package" else place)
        if found != ours:
            return _hides(kind, name, found)
    return None


def main() -> None:
    """The console script."""
    look()
    if sys.argv[1:2] == ["run"] and PLANS_ALONE.isdisjoint(sys.argv):
        from harness.run import zygote_client

        zygote_client.begin()  # it imports torch, which takes longer than all else before the first env step
    from harness.cli.main import main as command

    try:
        command()
    except SystemExit as end:
        if threading.active_count() == 1 and isinstance(end.code, int):
            leave(end.code)
        raise


def leave(code: int) -> None:
    """Ends the process without tearing down the interpreter, which takes a tenth of a second once pandas is imported.

    Runs what was registered for the end of the process; `harness.cli.main.main` has flushed the streams.
    """
    atexit._run_exitfuncs()  # noqa: SLF001  the documented way is slow
    os._exit(code)


def look() -> None:
    """Ends the process with one line when one of our packages is hidden."""
    if problem := hidden():
        print(f"rlbench: {problem}", file=sys.stderr)  # noqa: T201  a command line prints
        sys.exit(USAGE)


def _hides(kind: str, name: str, folder: str) -> str:
    listed = os.environ.get("PYTHONPATH")  # an empty entry is the working folder, unless the whole variable is empty
    if listed and folder in map(os.path.realpath, listed.split(os.pathsep)):
        where, what_to_do = "PYTHONPATH", f"take that folder out of PYTHONPATH, or rename the {kind}"
    else:
        where, what_to_do = "on Python's path before ours", f"take that folder off the path, or rename the {kind}"
    return f"a {kind} called {name!r} in {_shown(folder)} ({where}) hides rlbench's own; {what_to_do}"


def _shown(path: str) -> str:
    """A path as text that a terminal does not obey; `results.reading.untrusted` may itself be hidden."""
    return path if path.isprintable() else ascii(path)[1:-1]
