"""A description of this machine: recorded with each run, and judged before one (`harness.machine.findings`)."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from rlbench.harness.machine.cgroup import read_limits
from rlbench.harness.machine.telemetry.gpus import Gpu, read_gpus

PACKAGES = (
    "rlbench",
    "torch",
    "numpy",
    "gymnasium",
    "vizdoom",
    "ale-py",
    "habitat-sim",
    "mujoco",
    "dm-control",
    "minigrid",
    "pettingzoo",
    "envpool",
    "pandas",
    "pyarrow",
    "psutil",
    "nvidia-ml-py",
    "pydantic",
)

VARIABLES = re.compile(r"(OMP|GOMP|KMP|MKL|OPENBLAS|MALLOC|NCCL)_\w+|GLIBC_TUNABLES|LD_PRELOAD|PYTORCH_\w*ALLOC_CONF")
"""What users set of threads, allocators and communication: each can change a rate by more than systems differ."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """This machine at one moment; None for values that it does not give."""

    cpu_model: str | None
    num_cores: int
    """Hardware threads of the machine."""
    num_physical_cores: int | None
    num_affine_cores: int
    """Number of the `num_cores` that this process may run on."""
    cpu_quota_cores: float | None
    """The control group's limit of CPU time, in cores."""
    governors: tuple[str, ...]
    """Governors of the CPU's clock: several if cores differ, none in most virtual machines."""
    turbo: bool | None
    load_1m: float
    """Mean number of processes that ran or were ready to run, over the last minute."""
    memory_bytes: int
    memory_available_bytes: int
    memory_limit_bytes: int | None
    """The control group's limit."""
    swap_used_bytes: int
    shm_bytes: int | None
    """Size of /dev/shm, which holds POSIX shared memory."""
    shm_free_bytes: int | None
    gpus: tuple[Gpu, ...]
    gpu_source: str
    """The driver's version, or why no GPU can be read."""
    os: str
    kernel: str
    python: str
    variables: dict[str, str]
    """Environment variables of this process that set how libraries use threads and memory."""

    @property
    def num_usable_cores(self) -> float:
        """Cores that this process can keep busy: the smaller of affinity and quota."""
        return min(self.num_affine_cores, self.cpu_quota_cores or float("inf"))

    @property
    def usable_memory_bytes(self) -> int:
        """The machine's memory, or the control group's limit if that is smaller."""
        return min(self.memory_bytes, self.memory_limit_bytes or self.memory_bytes)


def read_machine(root: Path = Path("/")) -> Machine:
    """Reads the machine; `root` is the folder that holds `proc`, `sys` and `dev`."""
    memory, limits = psutil.virtual_memory(), read_limits(root)
    gpus, gpu_source = read_gpus()
    shm_bytes, shm_free_bytes = _shm(root)
    return Machine(
        cpu_model=_cpu_model(root),
        num_cores=os.cpu_count() or 1,
        num_physical_cores=psutil.cpu_count(logical=False),
        num_affine_cores=len(os.sched_getaffinity(0)),
        cpu_quota_cores=limits.cpu_quota_cores,
        governors=_governors(root),
        turbo=_turbo(root),
        load_1m=os.getloadavg()[0],
        memory_bytes=memory.total,
        memory_available_bytes=memory.available,
        memory_limit_bytes=limits.memory_bytes,
        swap_used_bytes=psutil.swap_memory().used,
        shm_bytes=shm_bytes,
        shm_free_bytes=shm_free_bytes,
        gpus=gpus,
        gpu_source=gpu_source,
        os=_os_name(),
        kernel=platform.release(),
        python=platform.python_version(),
        variables={name: value for name, value in sorted(os.environ.items()) if VARIABLES.fullmatch(name)},
    )


def describe() -> dict[str, Any]:
    """The machine in the form of `run.json`."""
    return asdict(read_machine())


def now() -> datetime:
    """The wall clock in UTC, which has no change to summer time; for names and dates, never for intervals."""
    return datetime.fromtimestamp(time.time(), UTC)


def packages() -> dict[str, str]:
    """Versions of the installed `PACKAGES`; imports none of them."""
    return versions(PACKAGES)


def versions(names: Iterable[str], python: Path | None = None) -> dict[str, str]:
    """Versions of the installed distributions among `names`, of this interpreter or of `python`."""
    path = sys.path if python is None else list(map(str, python.parents[1].glob("lib/python3*/*-packages")))
    found: dict[str, str] = {}
    for name in names:
        for one in metadata.distributions(name=name, path=path):
            found.setdefault(name, one.version)
    return found


def commit(folder: Path) -> str | None:
    """The git commit of a folder, with `-dirty` if tracked files have changed; None outside git or if git fails."""
    try:
        head = _git(folder, ["rev-parse", "HEAD"])
        words = ["status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty"]
        return f"{head}-dirty" if _git(folder, words, _without_filters(folder)) else head
    except (OSError, subprocess.SubprocessError):
        return None


HARMLESS_GIT = ("--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
"""With these options git writes nothing and runs no file-system monitor or hook of the repository's configuration."""
FILTER = re.compile(r"filter\..+\.(?:clean|smudge|process|required)", re.DOTALL)


def _git(folder: Path, words: Sequence[str], settings: Sequence[str] = ()) -> str:
    command = ["git", *HARMLESS_GIT, *settings, "-C", str(folder), *words]
    done = subprocess.run(  # noqa: S603  fixed words
        command,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=True,
        timeout=60,
        env={**os.environ, "GIT_ALLOW_PROTOCOL": ""},  # git must not fetch objects that the repository lacks
    )
    return done.stdout.strip()


def _without_filters(folder: Path) -> list[str]:
    """Options that switch off the filters in a repository's own configuration, which git would run on its files.

    Filters of the user's configuration stay. Raises OSError for a filter whose name no option can hold.
    """
    listed = _git(folder, ["config", "--list", "--show-scope", "--name-only", "-z"]).split("\0")
    names = {name for scope, name in zip(listed[::2], listed[1::2], strict=False) if scope in {"local", "worktree"}}
    names = {name for name in names if FILTER.fullmatch(name)}
    if any("=" in name for name in names):
        raise OSError("a filter's name holds '='")
    values = {name: "false" if name.endswith(".required") else "" for name in sorted(names)}
    return [word for name, value in values.items() for word in ("-c", f"{name}={value}")]


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _cpu_model(root: Path) -> str | None:
    fields: dict[str, str] = {}
    for line in (_read(root / "proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return fields.get("model name") or fields.get("Model") or platform.processor() or None


def _governors(root: Path) -> tuple[str, ...]:
    files = sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor"))
    return tuple(sorted({governor for file in files if (governor := _read(file))}))


def _turbo(root: Path) -> bool | None:
    cpu = root / "sys/devices/system/cpu"
    if (off := _read(cpu / "intel_pstate/no_turbo")) is not None:
        return off == "0"
    if (on := _read(cpu / "cpufreq/boost")) is not None:
        return on == "1"
    return None


def _shm(root: Path) -> tuple[int | None, int | None]:
    try:
        sizes = os.statvfs(root / "dev/shm")
    except OSError:
        return None, None
    return sizes.f_blocks * sizes.f_frsize, sizes.f_bavail * sizes.f_frsize


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()
