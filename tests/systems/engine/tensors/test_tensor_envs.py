from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from unittest.mock import patch

import pytest
from gymnasium.vector import AutoresetMode

from rlbench.harness.plan import registry
from tests.harness.runs import RunningSweep, install_family
from tests.systems.engine.cells import make_cell, run_in_turn
from tests.systems.engine.recorded import Recorded, record
from tests.systems.engine.tensors import walkers

MODES = [mode.value for mode in AutoresetMode]
SYSTEMS = ("sync", "appo", "ver")


@contextmanager
def registered() -> Iterator[None]:
    """As if the family were installed."""
    ours = [EntryPoint("walkers", f"{walkers.__name__}:FAMILY", registry.SCENARIOS)]
    found = lambda group: [*entry_points(group=group), *(ours if group == registry.SCENARIOS else [])]  # noqa: E731
    with patch.object(registry, "entry_points", found):
        yield


def record_walkers(folder: Path) -> None:
    """Runs this rank of the cell in `folder`, whose learner writes down what it learns from."""
    with registered():
        record(folder)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Recorded]:
    """What `sync` learns from each kind of arrays, whose weights stay what they are, by mode and kind."""
    with registered():
        cells = {
            f"{mode}-{arrays}": make_cell(
                "sync:learn.learning_rate=1e-30", f"walkers:mode={mode}:arrays={arrays}", iterations=4
            )
            for mode in MODES
            for arrays in ("torch", "numpy")
        }
        runs = run_in_turn(tmp_path_factory.mktemp("learned"), cells, 1, record_walkers)
    return {(name.partition("-")[0], name.partition("-")[2]): Recorded(run.folder) for name, run in runs.items()}


@pytest.mark.parametrize("mode", MODES)
def test_tensors_give_the_samples_of_arrays(learned: dict[tuple[str, str], Recorded], mode: str) -> None:
    """Every column that has a meaning is equal to the bit, in the same order, whoever resets."""
    ours, theirs = (learned[mode, arrays].samples() for arrays in ("torch", "numpy"))
    cut, over = theirs["truncated"], theirs["terminated"]
    assert cut.any()
    assert over.any()
    read = {"episode": cut | over, "bootstrap": cut, "prev_action": ~theirs["episode_start"]}
    assert ours.keys() == theirs.keys()
    for name in ours:
        which = read.get(name, slice(None))
        assert ours[name][which].tobytes() == theirs[name][which].tobytes(), name


@pytest.mark.parametrize("mode", MODES)
def test_every_step_has_a_fate(mode: str, tmp_path: Path) -> None:
    """A plug-in as somebody installs it, run by the command: env steps = learned + discarded + in flight."""
    install_family(tmp_path / "site", "walkers", Path(walkers.__file__))
    options = ("--device", "cpu", "--systems", ",".join(SYSTEMS), "--scenario", f"walkers:mode={mode}")
    with RunningSweep(tmp_path, *options, "--gpus", "1", "--env-steps", "1000") as sweep:
        assert sweep.end(len(SYSTEMS)) == 0, sweep.stderr
        records = [json.loads(path.read_text()) for path in sweep.out.glob("*/*/run.json")]
    assert len(records) == len(SYSTEMS)
    for found in records:
        counters = found["counters"]
        assert counters["env_steps"] == counters["learned"] + counters["discarded"] + counters["in_flight"]
        assert counters["frames"] == 2 * counters["env_steps"]
        assert counters["learned"] >= 1000
        assert counters["episodes"] > 100
