"""Some of the environments that misbehave; `tests/survive/check_misbehaving.py` has hundreds, in every system."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from rlbench.harness.plan.options import RunOptions
from tests.harness.chosen import chosen
from tests.harness.hostile import misbehaving_plugin
from tests.harness.hostile.misbehaving import NUM_ITERATIONS, STALL_S, SYSTEMS, Ended, ended
from tests.harness.hostile.misbehaving_plugin.cases import CASES, LEARNING
from tests.harness.runs import RunningSweep, install_family, plan_sweep
from tests.lanes import deep

BUILT_IN = ("BrokenPipeError", "KeyboardInterrupt", "GeneratorExit", "SystemExit")
"""One case of each, at whatever call it is, in `sync`."""
BY_NAME = {case.scenario.removeprefix("misbehaving/"): case for case in (*CASES, LEARNING)}
CHOSEN = (
    ("sync", "action-space:case=SystemExit-plain"),
    ("sync", "step:case=NotesRaise-odd"),
    ("sync", "close:case=end-segfault"),
    ("sync", "reward:case=complex"),
    ("ddppo", "learning:case=huge"),
    ("appo", "reset:case=NameOfTwoLines-odd"),
)
"""In both lanes: in the rank, in a step, at the end, of a value, of a rank that learns, and in another system."""
MORE = (
    *(("sync", next(name for name, case in BY_NAME.items() if case.case.startswith(f"{kind}-"))) for kind in BUILT_IN),
    ("sync", "reset:case=StrExits-odd"),
    ("sync", "close:case=StrRaises-odd"),
    ("sync", "info:case=frames-2-to-62"),
    ("sync", "info:case=success-5"),
    ("sync", "observation:case=int64"),
    ("sync", "answer:case=four"),
    ("gossip", "learning:case=huge"),
    ("appo", "learning:case=huge"),
    ("appo", "info:case=frames-negative"),
    ("appo", "close:case=end-hang"),
)
NUM_RANKS = {"ddppo": 2, "gossip": 2}
"""All ranks of the one see it, and that is named which has the cause; the other survives lost ranks, but not this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """What the sweep left."""

    cells: dict[tuple[str, str], Ended]
    exit_code: int
    left: list[psutil.Process]
    files: list[Path]
    stderr: str


@pytest.fixture(scope="module")
def swept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swept]:
    """A sweep of all cells, in whatever system."""
    folder, names = tmp_path_factory.mktemp("misbehaving"), chosen(request, "cell")
    install_family(folder / "site", "misbehaving", Path(misbehaving_plugin.__file__).parent, "scenario")
    cases = [BY_NAME[name] for _, name in names]
    asked = [
        RunOptions(
            systems=SYSTEMS[system],
            scenario=case.scenario,
            gpus=str(NUM_RANKS.get(system, 1)),
            device="cpu",
            iterations=NUM_ITERATIONS,
            stall=STALL_S,
        )
        for (system, _), case in zip(names, cases, strict=True)
    ]
    plan_sweep(folder, *asked)
    with RunningSweep(folder, "--resume") as sweep:
        exit_code = sweep.end(len(cases))
        yield Swept(
            cells=dict(zip(names, ended(sweep, "-", cases), strict=True)),
            exit_code=exit_code,
            left=sweep.processes(),
            files=sweep.files_left(),
            stderr=sweep.stderr,
        )


@pytest.mark.parametrize("cell", [*CHOSEN, *(pytest.param(cell, marks=deep) for cell in MORE)], ids=" ".join)
def test_the_record_says_what_an_environment_did(swept: Swept, cell: tuple[str, str]) -> None:
    """Whatever it raises or gives, at whatever call, is named with the environment; of `close` it is a warning."""
    over = swept.cells[cell]
    assert over.problems == [], over.row()


def test_a_sweep_goes_on_to_its_last_cell_and_leaves_nothing(swept: Swept) -> None:
    """Exit code 1, no traceback of ours, no process, no file."""
    assert swept.exit_code == 1
    assert (swept.left, swept.files) == ([], [])
    assert "Traceback" not in swept.stderr


def test_there_are_hundreds_of_ways() -> None:
    """Every built-in exception at some call, every text, and values of every kind; no two alike."""
    assert len({case.scenario for case in CASES}) == len(CASES) >= 200
