"""Holds the steps/s of systems against those of `BASELINE`, by `rlbench gate`: `nox -s gate`.

It takes minutes to see a few per cent (docs/gate.md), so each commit has another system, and every fourth another
simulator: eight commits have all. `--deep` has all at once. What fails is a loss beyond the tolerance that was shown
twice, the second time with other seeds and twice the time, so noise does not fail a change. What these few repetitions
do not show passes; a loss that they miss is there in the next commits too, since the baseline stays.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmarks.gate.baseline import BASELINE, ROOT
from rlbench.results.verdicts.gate import EXIT_CODES

SYSTEMS = ("ver", "ddppo", "appo", "gossip")
SMALL = ":num_envs=4:rollout_steps=32"
"""Iterations of about a second: in its time a run has several."""
EMULATED = ("--scenario", f"emulated/open-fridge{SMALL}", "--gpus", "4", "--device", "emulated")
SIMULATORS = tuple(("--scenario", f"{name}{SMALL}", "--gpus", "1", "--device", "cpu") for name in ("pointnav", "atari"))
SECONDS = 10.0
"""Of a run; starting takes as long."""
BUDGET_S = 75.0
"""Of a gate: three or four repetitions."""
PASSES = {EXIT_CODES["passed"], EXIT_CODES["inconclusive"]}


def of_commit(number: int) -> list[tuple[str, Sequence[str]]]:
    """The systems, each with what it runs, that the commit with this number holds."""
    system = SYSTEMS[number % len(SYSTEMS)]
    return [(system, EMULATED), (system, SIMULATORS[number // len(SYSTEMS) % len(SIMULATORS)])]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All cells with `--deep`, or those of this commit."""
    if metafunc.config.getoption("--deep"):
        numbers = range(len(SYSTEMS) * len(SIMULATORS))
        cells = list(dict.fromkeys(cell for number in numbers for cell in of_commit(number)))
    else:
        counted = subprocess.run(
            ["git", "-C", str(ROOT), "rev-list", "--count", "HEAD"], check=True, capture_output=True
        )
        cells = of_commit(int(counted.stdout))
    names = [f"{system} {options[1].partition(':')[0].partition('/')[0]}" for system, options in cells]
    metafunc.parametrize(("system", "options"), cells, ids=names)


def gate(system: str, options: Sequence[str], out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Measures HEAD against the baseline; the outcome is in `out`/gate.json too."""
    out.mkdir()
    asked = ("--baseline", BASELINE, "--candidate", "HEAD", "--systems", system, *options, "--seconds", f"{SECONDS:g}")
    files = ("--out", str(out), "--json", str(out / "gate.json"))
    command = [sys.executable, "-P", "-m", "rlbench", "gate", *asked, *files, *more]
    return subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)


def check_revisions(system: str, options: Sequence[str], tmp_path: Path, say: Callable[[str], None]) -> None:
    """A system does as many steps/s as it did, or more, as far as was shown."""
    found = gate(system, options, tmp_path / "first", "--budget", f"{BUDGET_S:g}")
    if found.returncode == EXIT_CODES["regression"]:
        say(found.stdout)
        found = gate(system, options, tmp_path / "second", "--budget", f"{2 * BUDGET_S:g}", "--seed", "1000")
    assert found.returncode in PASSES, found.stdout + found.stderr
    written = max(tmp_path.glob("*/gate.json"))
    for check in json.loads(written.read_text())["checks"]:
        ratio = check["ratio"]
        if check["metric"] == "steps_per_s" and ratio:
            ends = "no interval" if ratio["low"] is None else f"{ratio['low']:.3f} to {ratio['high']:.3f}"
            say(f"{check['outcome']}: {ratio['value']:.3f} ({ends}) of {BASELINE[:12]}: {system}, {check['scenario']}")
