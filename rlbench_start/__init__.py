"""Looks whether our packages are ours, and only then starts one of our programs.

The command's entry point is `main`; `python -P -m rlbench_start harness.launch.nodes.agent` starts another of our
modules, where Python's path is that of another machine. Nothing of ours is imported before `hidden` has looked.

Our packages have names that anybody's may have, and Python takes the first of a name that is on its path. This one has
a name that nobody else's has: a package `rlbench` of somebody else (the robot-learning one) does not matter.
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
"""With these options `rlbench run` starts no processes on this machine, or none that are forked."""


def hidden() -> str | None:
    """What is wrong when Python would import somebody else's package in the place of one of ours, in one line.

    Finds packages as `import` does, and imports none. A folder of such a name that is no package hides nothing: a
    package further down the path goes before it.
    """
    ours = os.path.realpath(Path(__file__).parents[1])
    for name in OURS:
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):  # it is in `sys.modules`, where somebody has put something else
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
        from harness.processes import zygote

        zygote.begin()  # it imports torch, which takes longer than all else before the first env step
    from harness.cli.main import main as command

    try:
        command()
    except SystemExit as end:
        if threading.active_count() == 1 and isinstance(end.code, int):
            leave(end.code)
        raise


def leave(code: int) -> None:
    """Ends the process without taking the interpreter apart, which takes a tenth of a second after pandas.

    All that was registered for the end of the process is done; `harness.cli.main.main` has flushed the streams.
    """
    atexit._run_exitfuncs()  # noqa: SLF001  the documented way is the one that takes its time
    os._exit(code)


def look() -> None:
    """Ends the process with one line when one of our packages is hidden."""
    if problem := hidden():
        print(f"rlbench: {problem}", file=sys.stderr)  # noqa: T201  a command line prints
        sys.exit(USAGE)


def _hides(kind: str, name: str, folder: str) -> str:
    listed = os.environ.get("PYTHONPATH")  # an empty entry is the working folder, but not where all of it is empty
    if listed and folder in map(os.path.realpath, listed.split(os.pathsep)):
        where, what_to_do = "PYTHONPATH", f"take that folder out of PYTHONPATH, or rename the {kind}"
    else:
        where, what_to_do = "on Python's path before ours", f"take that folder off the path, or rename the {kind}"
    return f"a {kind} called {name!r} in {_shown(folder)} ({where}) hides rlbench's own; {what_to_do}"


def _shown(path: str) -> str:
    """A path that a terminal shows and does not obey; `results.reading.untrusted` may be the one that is hidden."""
    return path if path.isprintable() else ascii(path)[1:-1]
