"""Watches which new files in /tmp and /dev/shm processes with a run's mark use: `python -m tests.watching MARK`.

Reads until its input ends, which comes with the end of the run, looks meanwhile, and then prints which of those files
are still there though none of the processes is. What no process was seen to use is nobody's.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MARK = "RLBENCH_TESTS"
"""A variable that all have which a run of the tests has started."""
PLACES = (Path("/tmp"), Path("/dev/shm"))  # noqa: S108  what is looked through, not written
LOOK_S = 0.5


class Watch:
    """Names in `PLACES` that came since it was made."""

    def __init__(self, mark: str, places: tuple[Path, ...] = PLACES) -> None:
        self._mark, self._places = f"{MARK}={mark}".encode(), places
        self._before = self._names()
        self._ours = set[Path]()

    def look(self) -> None:
        """Notes which of the new names processes with the mark use."""
        if new := self._names() - self._before - self._ours:
            self._ours |= {path for path in self._used() if path in new}

    def left(self) -> list[Path]:
        """Those that were noted and are there, none of their processes being there any more."""
        return sorted((self._ours & self._names()) - set(self._used()))

    def _names(self) -> set[Path]:
        return {path for place in self._places for path in place.iterdir()}

    def _used(self) -> Iterator[Path]:
        listening = _sockets()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                variables = (process / "environ").read_bytes().split(b"\0")
                if self._mark in variables:
                    for text in _uses(process, variables, listening):
                        for place in self._places:
                            if text.startswith(f"{place}/"):
                                yield place / text.removeprefix(f"{place}/").partition("/")[0]


def _uses(process: Path, variables: list[bytes], listening: dict[str, str]) -> Iterator[str]:
    """Paths that a process has mapped, works in, has open, listens at, or was given for temporary files."""
    for line in (process / "maps").read_text(encoding="utf-8", errors="replace").splitlines():
        yield line[73:].removesuffix(" (deleted)")
    yield str((process / "cwd").readlink())
    for link in (process / "fd").iterdir():
        with suppress(OSError):
            name = str(link.readlink())
            yield listening.get(name, name)
    yield from (os.fsdecode(each.removeprefix(b"TMPDIR=")) for each in variables if each.startswith(b"TMPDIR="))


def _sockets() -> dict[str, str]:
    """Where sockets listen, by what a descriptor of theirs is called."""
    lines = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines()[1:]
    words = (line.split(maxsplit=7) for line in lines)
    return {f"socket:[{each[6]}]": each[7] for each in words if len(each) == 8}


def main() -> None:
    """Watches until its input ends."""
    watch = Watch(sys.argv[1])
    while not select.select([sys.stdin], [], [], LOOK_S)[0]:
        watch.look()
    for path in watch.left():
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
