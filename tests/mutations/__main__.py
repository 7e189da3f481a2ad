"""Makes one wrong change after the other in copies of the repository, and says which test noticed: `--help`.

Of each change first the tests that are named like the file, then those of its package, and where it survived them all
others run, each until one fails. A test that fails without the change, too, has noticed nothing. The working tree is
only read; the copies go with this process, however it ends. Exit code 1 where a change was missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

from tests.mutations import of_harness, of_results, of_systems
from tests.mutations.change import Change
from tests.mutations.copying import Copy
from tests.vanishing import vanishing_folder

CHANGES = {
    change.name: change for part in (of_harness.CHANGES, of_results.CHANGES, of_systems.CHANGES) for change in part
}


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a change."""

    by: str | None
    """The test that failed; None where none did."""
    seconds: float


def find(change: Change, jobs: int, *, whole: bool) -> Found:
    """Makes a change and runs tests; `whole`: all of them, where those of its package do not notice."""
    began = time.monotonic()
    with vanishing_folder("rlbench-mutation-") as folder:
        copy = Copy(folder)
        right = (copy.root / change.file).read_text(encoding="utf-8")
        mirror = change.folder_of_tests(copy.root)
        own, of_package = change.own_tests(copy.root), [] if mirror is None else [mirror]
        stages = [*filter(None, (own, of_package)), *([[]] if whole else [])]
        change.apply(copy.root)
        for names in stages:
            failed, _ = copy.test(names, jobs)
            if failed is None:
                continue
            seconds = time.monotonic() - began
            (copy.root / change.file).write_text(right, encoding="utf-8")
            again, said = copy.test([failed], 1)
            assert again is None, f"{failed} fails without {change.name}, too:\n{said[-2000:]}"
            return Found(failed, seconds)
    return Found(None, time.monotonic() - began)


def main() -> None:
    """Tries the changes and prints a line for each."""
    parser = argparse.ArgumentParser(prog="mutations", description=__doc__)
    parser.add_argument("--only", action="append", choices=CHANGES, metavar="NAME", help=", ".join(CHANGES))
    parser.add_argument("--jobs", type=int, default=2, help="processes that run tests side by side")
    parser.add_argument("--mirror", action="store_true", help="only the tests of the changed package")
    asked = parser.parse_args()
    missed = []
    for name in asked.only or CHANGES:
        found = find(CHANGES[name], asked.jobs, whole=not asked.mirror)
        missed += [name] * (found.by is None)
        sys.stdout.write(f"{name:22} {found.seconds:6.0f} s  {found.by or 'MISSED: ' + CHANGES[name].breaks}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(asked.only or CHANGES)} changes, {len(missed)} missed\n")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
