"""Checks of the machine for whatever could spoil a figure, each with its rule and advice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import psutil

from rlbench.harness.machine.machine import Machine
from rlbench.harness.machine.telemetry.gpus import Gpu

GIB = 1 << 30
LOAD_PER_CORE = 0.25
LEAST_AVAILABLE_FRACTION = 0.25
LEAST_SHM_BYTES = GIB
FOREIGN_GPU_MEMORY_FRACTION = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineFinding:
    """The result of one check."""

    level: Literal["ok", "warning"]
    what: str
    """What was found, with its numbers."""
    rule: str
    """The condition that it should meet."""
    advice: str
    """What to do; empty if the condition is met."""

    def __str__(self) -> str:
        return f"{self.what} ({self.rule})" + (f"; {self.advice}" if self.advice else "")


def judge(machine: Machine, num_workers: int | None = None) -> list[MachineFinding]:
    """Checks everything that could spoil a figure.

    Args:
        machine: the result of `harness.machine.machine.read_machine`.
        num_workers: environment workers that a run will keep busy; None if that is unknown or they mostly sleep.
    """
    return [
        *_cores(machine, num_workers),
        *_clocks(machine),
        *_load(machine),
        *_memory(machine),
        *(finding for gpu in machine.gpus for finding in _gpu(gpu)),
    ]


def _finding(what: str, *, well: bool, rule: str, advice: str) -> MachineFinding:
    return MachineFinding(level="ok" if well else "warning", what=what, rule=rule, advice="" if well else advice)


def _cores(machine: Machine, num_workers: int | None) -> Iterator[MachineFinding]:
    yield _finding(
        f"{machine.num_affine_cores} of {machine.num_cores} cores by affinity",
        well=machine.num_affine_cores == machine.num_cores,
        rule="all cores may be used",
        advice="compare only runs with the same affinity (taskset, Slurm --cpus-per-task)",
    )
    if machine.cpu_quota_cores is not None:
        yield _finding(
            f"control group allows {machine.cpu_quota_cores:g} cores' time",
            well=machine.cpu_quota_cores >= machine.num_affine_cores,
            rule=f"at least the {machine.num_affine_cores} cores that are seen",
            advice="a process that uses more is paused: raise the quota (docker --cpus) or use fewer ranks and workers",
        )
    if num_workers is not None:
        yield _finding(
            f"{num_workers} busy environment workers on {machine.num_usable_cores:g} usable cores",
            well=num_workers <= machine.num_usable_cores,
            rule="at most one a core",
            advice="cores are oversubscribed: use fewer environments or GPUs, or a machine with more cores",
        )


def _clocks(machine: Machine) -> Iterator[MachineFinding]:
    if machine.governors:
        yield _finding(
            f"CPU governor {', '.join(machine.governors)}",
            well=machine.governors == ("performance",),
            rule="performance",
            advice="clocks follow the load: cpupower frequency-set -g performance",
        )
    if machine.turbo is not None:
        yield _finding(
            f"CPU turbo {'on' if machine.turbo else 'off'}",
            well=not machine.turbo,
            rule="off",
            advice="clocks fall as more cores are busy, which lowers scaling factors: turn it off in the firmware",
        )


def _load(machine: Machine) -> Iterator[MachineFinding]:
    most = LOAD_PER_CORE * machine.num_cores
    yield _finding(
        f"load {machine.load_1m:.2f} on {machine.num_cores} cores",
        well=machine.load_1m <= most,
        rule=f"at most {most:g}, the mean of the last minute",
        advice="other work is running: end it, or wait a minute if it was yours",
    )


def _memory(machine: Machine) -> Iterator[MachineFinding]:
    least = LEAST_AVAILABLE_FRACTION * machine.usable_memory_bytes
    available = min(machine.memory_available_bytes, machine.usable_memory_bytes)
    yield _finding(
        f"{available / GIB:.1f} of {machine.usable_memory_bytes / GIB:.1f} GiB memory available",
        well=available >= least,
        rule=f"at least {least / GIB:.1f} GiB",
        advice="end other programs or use fewer environments",
    )
    if machine.swap_used_bytes:
        yield _finding(
            f"{machine.swap_used_bytes / GIB:.2f} GiB swapped out",
            well=False,
            rule="none",
            advice="memory was short before: free some, then swapoff -a && swapon -a",
        )
    if machine.shm_free_bytes is not None:
        yield _finding(
            f"{machine.shm_free_bytes / GIB:.2f} GiB free in /dev/shm",
            well=machine.shm_free_bytes >= LEAST_SHM_BYTES,
            rule="at least 1 GiB, for simulators and NCCL",
            advice="remove old files there or enlarge it (docker --shm-size=8g)",
        )


def _gpu(gpu: Gpu) -> Iterator[MachineFinding]:
    name = f"GPU {gpu.index} ({gpu.name})"
    foreign = [pid for pid in gpu.process_ids if not _is_ours(pid)]
    used_fraction = (gpu.memory_used_bytes or 0) / (gpu.memory_bytes or 1)
    yield _finding(
        f"{name}: {len(foreign)} foreign processes, {100 * used_fraction:.0f}% of its memory in use",
        well=not foreign and used_fraction <= FOREIGN_GPU_MEMORY_FRACTION,
        rule="nobody else's work (from inside a container processes may be hidden, memory is not)",
        advice=f"end {'processes ' + ', '.join(map(str, foreign)) if foreign else 'what uses it (nvidia-smi)'}",
    )
    yield _finding(
        f"{name}: clocks held back by {', '.join(gpu.slowdowns) or 'nothing'}",
        well=not gpu.slowdowns,
        rule="nothing holds them back",
        advice="let it cool, or raise its power limit (nvidia-smi -q -d PERFORMANCE)",
    )


def _is_ours(pid: int) -> bool:
    """Whether a process is this one or one of its descendants."""
    try:
        process = psutil.Process(pid)
        return os.getpid() in (pid, *(parent.pid for parent in process.parents()))
    except psutil.Error:
        return False
