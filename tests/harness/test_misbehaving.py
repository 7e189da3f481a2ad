"""A dozen of the environments that misbehave; `tests/survive/check_misbehaving.py` has hundreds, in every system."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import psutil
import pytest

from tests.harness.misbehaving import Ended, ended, start
from tests.harness.misbehaving_plugin.cases import CASES, LEARNING, Case

CHOSEN = {
    "sync": (
        "num-actions:case=SystemExit-plain",
        "reset:case=StrExits-odd",
        "step:case=NotesRaise-odd",
        "close:case=StrRaises-odd",
        "close:case=end-segfault",
        "reward:case=complex",
        "info:case=frames-2-to-62",
        "info:case=success-5",
        "observation:case=int64",
        "answer:case=four",
    ),
    "ddppo": ("learning:case=huge",),
    "gossip": ("learning:case=huge",),
    "appo": ("learning:case=huge", "reset:case=NameOfTwoLines-odd", "info:case=frames-negative", "close:case=end-hang"),
}
NUM_RANKS = {"ddppo": 2, "gossip": 2}
"""All ranks of the one see it, and that is named which has the cause; the other survives lost ranks, but not this."""
BUILT_IN = ("BrokenPipeError", "KeyboardInterrupt", "GeneratorExit", "SystemExit")
"""One case of each, at whatever call it is, in `sync`."""


def _cases(system: str) -> list[Case]:
    by_name = {case.scenario.removeprefix("misbehaving/"): case for case in (*CASES, LEARNING)}
    of_built_in = [next(case for case in CASES if case.case.startswith(f"{kind}-")) for kind in BUILT_IN]
    return [by_name[name] for name in CHOSEN[system]] + (of_built_in if system == "sync" else [])


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """What the sweeps left."""

    cells: list[Ended]
    exit_codes: list[int]
    left: list[psutil.Process]
    files: list[str]
    stderr: str


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swept]:
    """A sweep of each system, side by side."""
    with ExitStack() as stack:
        sweeps = {
            system: stack.enter_context(
                start(tmp_path_factory.mktemp(system), system, _cases(system), NUM_RANKS.get(system, 1))
            )
            for system in CHOSEN
        }
        exit_codes = [sweep.end(len(_cases(system))) for system, sweep in sweeps.items()]
        yield Swept(
            cells=[cell for system, sweep in sweeps.items() for cell in ended(sweep, system, _cases(system))],
            exit_codes=exit_codes,
            left=[left for sweep in sweeps.values() for left in sweep.processes()],
            files=[str(path) for sweep in sweeps.values() for path in sweep.files_left()],
            stderr="".join(sweep.stderr for sweep in sweeps.values()),
        )


@pytest.mark.parametrize("number", range(sum(len(_cases(system)) for system in CHOSEN)))
def test_the_record_says_what_an_environment_did(swept: Swept, number: int) -> None:
    """Whatever it raises or gives, at whatever call, is named with the environment; of `close` it is a warning."""
    cell = swept.cells[number]
    assert cell.problems == [], cell.row()


def test_a_sweep_goes_on_to_its_last_cell_and_leaves_nothing(swept: Swept) -> None:
    """Exit code 1, no traceback of ours, no process, no file."""
    assert swept.exit_codes == [1] * len(CHOSEN)
    assert (swept.left, swept.files) == ([], [])
    assert "Traceback" not in swept.stderr


def test_there_are_hundreds_of_ways() -> None:
    """Every built-in exception at some call, every text, and values of every kind; no two alike."""
    assert len({case.scenario for case in CASES}) == len(CASES) >= 200
