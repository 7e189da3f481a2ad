"""Checks that `rlbench` is ours, and only then starts one of our programs.

The command's entry point is `main`; `python -P -m rlbench_start rlbench.harness.launch.nodes.agent` starts another of
our modules, on a machine whose Python path may differ. Nothing of ours is imported before `hidden` has checked: there
is another package `rlbench`, of robot learning, and Python takes the first on its path. This one's name is ours alone.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

OURS = "rlbench"
USAGE = 2
PLANS_ALONE = {"--help", "--dry-run", "--hosts", "--launcher"}
"""Options with which `rlbench run` starts no processes on this machine, or no forked ones; a sweep file that
has them is read later, and ends what was started."""


def hidden() -> str | None:
    """One line that says what is wrong when Python would import somebody else's `rlbench` in place of ours; else None.

    Finds the package as `import` does, and does not import it. A folder of its name that is not a package hides
    nothing: Python prefers a package further down the path.
    """
    ours = os.path.realpath(Path(__file__).parents[1])
    try:
        spec = find_spec(OURS)
    except (ImportError, ValueError):  # `sys.modules` holds something else by this name
        spec = None
    if spec is None or spec.origin is None:
        return f"our package {OURS!r} is not in {_shown(ours)}; reinstall rlbench"
    place = Path(spec.origin).parent
    kind = "module" if spec.submodule_search_locations is None else "package"
    found = os.path.realpath(place.parent if kind == "package" else place)
    return None if found == ours else _hides(kind, found)


def main() -> None:
    """The console script."""
    look()
    if sys.argv[1:2] == ["run"] and PLANS_ALONE.isdisjoint(sys.argv):
        from rlbench.harness.run import zygote_client

        zygote_client.begin()  # it imports torch, which takes longer than all else before the first env step
    from rlbench.harness.cli.main import main as command

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
    """Ends the process with one line when our package is hidden."""
    if problem := hidden():
        print(f"rlbench: {problem}", file=sys.stderr)  # noqa: T201  a command line prints
        sys.exit(USAGE)


def _hides(kind: str, folder: str) -> str:
    listed = os.environ.get("PYTHONPATH")  # an empty entry is the working folder, unless the whole variable is empty
    if listed and folder in map(os.path.realpath, listed.split(os.pathsep)):
        where, what_to_do = "PYTHONPATH", f"take that folder out of PYTHONPATH, or rename the {kind}"
    else:
        where, what_to_do = "on Python's path before ours", f"take that folder off the path, or rename the {kind}"
    return f"a {kind} called {OURS!r} in {_shown(folder)} ({where}) hides ours; {what_to_do}"


def _shown(path: str) -> str:
    """A path as text that a terminal does not obey; the module that escapes other texts may itself be hidden."""
    return path if path.isprintable() else ascii(path)[1:-1]
