"""What a process has open, by name: other tests' descriptors come and go, so their number says little."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def open_files(pid: int | str = "self") -> list[str]:
    """Paths, or `pipe:[inode]`, `socket:[inode]`, `/memfd:name (deleted)`, one for each descriptor."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # the listing's own, or closed since
            found.append(str(link.readlink()))
    return found
