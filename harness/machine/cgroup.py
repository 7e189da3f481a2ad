"""How much CPU and memory this process's control groups allow, versions 1 and 2.

A limit holds for a group and all groups below it. So the smallest limit counts, of the process's own group and of all
groups above it that are mounted here (a container sees only its own part of the tree).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

NO_LIMIT_BYTES = 1 << 60
"""Version 1 gives a number near 2^63 for 'no limit'."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CgroupLimits:
    """The limits; None where there is none."""

    cpu_quota_cores: float | None
    """CPU seconds per second, that is, a number of cores."""
    memory_bytes: int | None


def read_limits(root: Path = Path("/")) -> CgroupLimits:
    """Reads the limits of this process; `root` is the folder that holds `proc` and `sys`."""
    quotas: list[float] = []
    memories: list[int] = []
    for folder in _group_folders(root):
        quotas += _quota(folder)
        memories += _memory(folder)
    return CgroupLimits(cpu_quota_cores=min(quotas, default=None), memory_bytes=min(memories, default=None))


def _group_folders(root: Path) -> Iterator[Path]:
    """The folders of this process's groups in each mounted hierarchy, and of the groups above them."""
    groups = {}
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):  # version 2 has the empty name
            groups[controller] = PurePosixPath(path)
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind not in {"cgroup", "cgroup2"}:
            continue
        mounted, mount_point = (PurePosixPath(field) for field in before.split(" ")[3:5])
        names = [""] if kind == "cgroup2" else options.replace(" ", ",").split(",")
        for name in {"cpu", "memory", ""}.intersection(names):
            group = groups.get(name, PurePosixPath("/"))
            inside = group.relative_to(mounted) if group.is_relative_to(mounted) else PurePosixPath()
            for folder in (inside, *inside.parents):
                yield root / mount_point.relative_to("/") / folder


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _quota(folder: Path) -> Iterator[float]:
    words = " ".join(_lines(folder / "cpu.max")).split()
    if not words:
        words = _lines(folder / "cpu.cfs_quota_us") + _lines(folder / "cpu.cfs_period_us")
    if len(words) == 2 and words[0].isdigit() and int(words[1]):  # not 'max', not -1
        yield int(words[0]) / int(words[1])


def _memory(folder: Path) -> Iterator[int]:
    for name in ("memory.max", "memory.limit_in_bytes"):
        for line in _lines(folder / name):
            if line.isdigit() and int(line) < NO_LIMIT_BYTES:
                yield int(line)
