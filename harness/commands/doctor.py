"""`rlbench doctor`: prints what this machine is, and what about it could spoil a figure."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from rlbench.harness.machine.findings import GIB, MachineFinding, judge
from rlbench.harness.machine.machine import Machine, packages, read_machine
from rlbench.reports.terminal.table import make_console

if TYPE_CHECKING:
    from rlbench.harness.devices.kinds import DeviceKind
    from rlbench.harness.launch.nodes.launches import Launch


def print_doctor(console: Console | None = None, num_workers: int | None = None, *, strict: bool = False) -> int:
    """Prints the machine and the findings; returns the exit code, 1 when the machine cannot be read at all, else 0.

    Args:
        console: where to print; None for the terminal.
        num_workers: environment workers that a run would keep busy, compared with the cores; None to leave it out.
        strict: return 1 if a check warns, too.
    """
    console = console or make_console()
    try:
        machine = read_machine()
    except (OSError, RuntimeError) as problem:
        console.print(Text(f"this machine cannot be read: {problem}"))
        return 1
    facts = _facts(machine)
    for name, value in facts.items():
        _print_hanging(console, f"{name:{max(map(len, facts))}}  ", value)
    console.print()
    found = judge(machine, num_workers)
    for finding in sorted(found, key=lambda finding: finding.level == "ok"):
        _print_finding(console, finding)
    num_warnings = sum(finding.level == "warning" for finding in found)
    console.print()
    warn = "warns" if num_warnings == 1 else "warn"
    console.print(f"{num_warnings} of {len(found)} checks {warn} of what could spoil a figure")
    return 1 if strict and num_warnings else 0


def doctor_network(launch: Launch, num_ranks: int, device: DeviceKind, out: Path | None) -> int:
    """Measures messages between the ranks of several machines and prints their times; returns the exit code."""
    from rlbench.harness.cluster.measured_network import print_network

    return print_network(launch, num_ranks, device, out, make_console())


def _print_finding(console: Console, finding: MachineFinding) -> None:
    style = "bold yellow" if finding.level == "warning" else "green"
    _print_hanging(console, f"{finding.level:7} ", f"{finding.what}; rule: {finding.rule}", style)
    if finding.advice:
        _print_hanging(console, " " * 8, finding.advice)


def _print_hanging(console: Console, head: str, text: str, style: str = "") -> None:
    """Prints a text behind a head; lines that follow begin where it began."""
    lines = textwrap.wrap(text, max(1, console.width - len(head)), break_on_hyphens=False) or [""]
    for number, line in enumerate(lines):
        start = (" " * len(head), "") if number else (head, style)
        console.print(Text.assemble(start, line))


def _facts(machine: Machine) -> dict[str, str]:
    quota = f", quota {machine.cpu_quota_cores:g}" if machine.cpu_quota_cores else ""
    limit = f", limit {machine.memory_limit_bytes / GIB:.1f} GiB" if machine.memory_limit_bytes else ""
    return {
        "CPU": f"{machine.cpu_model or 'unknown'}, {machine.num_cores} cores, {machine.num_affine_cores} usable{quota}",
        "memory": f"{machine.memory_bytes / GIB:.1f} GiB{limit}",
        **{f"GPU {gpu.index}": _gpu(gpu.name, gpu.memory_bytes, gpu.power_limit_w) for gpu in machine.gpus},
        "GPUs": f"{len(machine.gpus)}, {machine.gpu_source}",
        "system": f"{machine.os}, kernel {machine.kernel}, Python {machine.python}",
        "packages": ", ".join(f"{name} {version}" for name, version in packages().items()),
    }


def _gpu(name: str, memory_bytes: int | None, power_limit_w: float | None) -> str:
    memory = f", {memory_bytes / GIB:.0f} GiB" if memory_bytes else ""
    power = f", {power_limit_w:.0f} W" if power_limit_w else ""
    return f"{name}{memory}{power}"
