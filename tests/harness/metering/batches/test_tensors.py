from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from rlbench.harness.contract.envs import make_counted_batch
from rlbench.harness.metering.batches.tensors import as_tensors, first_tensor, on_host
from tests.harness.metering.batches import device_tensors
from tests.harness.metering.batches.device_tensors import DEVICE, KINDS, DeviceTensor, Tensored
from tests.harness.metering.batches.test_counted_batch import COUNTERS, MODES, played_in_batch, records
from tests.harness.metering.batches.vector_scenarios import ACTIONS, RandomScenario, meter, seats_of

if TYPE_CHECKING:
    from rlbench.harness.contract.device import Seat

NUM, CALLS = 4, 60


@dataclass(frozen=True)
class TensorScenario(RandomScenario):
    """The same environments with tensors."""

    kind: str = "torch"

    def make_envs(self, seats: Sequence[Seat]) -> Any:
        """All of them."""
        return Tensored(super().make_envs(seats), self.kind)


@pytest.fixture(autouse=True)
def _none_moved() -> Iterator[None]:
    device_tensors.moved.clear()
    return iter([None])


@pytest.mark.parametrize("is_native", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_tensors_tell_what_arrays_do(kind: str, mode: AutoresetMode, is_native: bool, tmp_path: Path) -> None:
    """Observations, last ones too, rewards, ends, counters and records are those of the environments with arrays."""
    actions = np.random.default_rng(3).integers(0, ACTIONS.n, (NUM, CALLS))
    found = []
    for name, scenario in (
        ("arrays", RandomScenario(5, mode, is_native)),
        ("tensors", TensorScenario(5, mode, is_native, kind)),
    ):
        path, file = meter(tmp_path / name, NUM + 2)
        batch = make_counted_batch(scenario, seats_of(NUM), tmp_path / name, path)
        story = played_in_batch(batch, actions)
        batch.close()
        counted = [[file.count(2 + i, of) for of in COUNTERS] for i in range(NUM)]
        found.append((story, counted, repr(records(tmp_path / name))))
    assert found[0] == found[1]
    assert found[0][1][0][2] > 3, "episodes have ended"


@pytest.mark.parametrize("mode", MODES)
def test_each_leaf_is_moved_once(mode: AutoresetMode, tmp_path: Path) -> None:
    """As a whole: how many copies a step needs does not depend on how many environments there are."""
    most = []
    for num in (2, 9):
        path, _ = meter(tmp_path / str(num), num + 2)
        scenario = TensorScenario(5, mode, is_native=True, kind="elsewhere")
        batch = make_counted_batch(scenario, seats_of(num), tmp_path / str(num), path)
        batch.reset()
        of_steps = []
        for _ in range(20):
            device_tensors.moved.clear()
            step = batch.step(np.zeros(num, int))
            assert all(shape[0] == num for shape in device_tensors.moved)
            if step.ended.any():
                of_steps.append(len(device_tensors.moved))
        batch.close()
        most.append(max(of_steps))
    assert most[0] == most[1]
    of_step = 3 + 3 + 4
    """Leaves of the observation; rewards and ends; what infos say."""
    of_mode = {AutoresetMode.SAME_STEP: 3 + 1, AutoresetMode.DISABLED: 3}
    """The last observation and its mask; the first one."""
    assert most[0] == of_step + of_mode.get(mode, 0)


def test_infos_that_nobody_reads_stay_where_they_are() -> None:
    """Simulators log much; what is read is moved once, however deep it is."""
    log = {"log": {"a": DeviceTensor(np.zeros(7))}, "num_frames": DeviceTensor(np.ones(3, int))}
    read = on_host(log)
    assert not device_tensors.moved
    assert "num_frames" in read
    assert "raw_reward" not in read
    assert read.get("raw_reward") is None
    assert [read["num_frames"].tolist() for _ in range(2)] == [[1, 1, 1]] * 2
    assert device_tensors.moved == [(3,)]
    assert read["log"]["a"].tolist() == [0.0] * 7
    assert sorted(read) == ["log", "num_frames"]
    assert len(read) == 2


def test_actions_of_any_structure_become_tensors() -> None:
    """On the device of the observation, with their dtypes, in memory of their own; what is no array stays."""
    like = first_tensor({"a": (np.zeros(2), [DeviceTensor(np.zeros(2))])})
    actions: dict[str, Any] = {"move": np.zeros((2, 3), np.float32), "fire": (np.ones(2, np.int64), None)}
    made = as_tensors(actions, like)
    assert made["move"].device == DEVICE
    assert made["fire"][1] is None
    for tensor, array in ((made["move"], actions["move"]), (made["fire"][0], actions["fire"][0])):
        values = tensor.cpu().numpy()
        assert values.dtype == array.dtype
        assert np.array_equal(values, array)
    own = torch.nn.Parameter(torch.zeros(2))
    tensor = as_tensors(actions["move"], own)
    assert (type(tensor), tensor.dtype, tensor.device) == (torch.Tensor, torch.float32, own.device)
    tensor += 1
    assert not actions["move"].any()


def test_floats_that_numpy_lacks_become_float32() -> None:
    """Without loss."""
    moved = on_host(torch.tensor([1.5, -3e38], dtype=torch.bfloat16))
    assert moved.dtype == np.float32
    assert moved[0] == 1.5


class Unknown:
    """A tensor of no library."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """Of the CPU."""
        return (1, 0)


def test_tensors_that_cannot_be_made_are_refused() -> None:
    """In a line that names their class."""
    with pytest.raises(ValueError, match=r"^make_envs gave environments whose tensors are Unknown: "):
        as_tensors(np.zeros(2), Unknown())


class Lies(Tensored):
    """Gives something else in one place of an answer."""

    def __init__(self, envs: Any, place: int, value: Any) -> None:
        super().__init__(envs, "elsewhere")
        self._lie = place, value

    def step(self, actions: Any) -> Any:
        """Lies."""
        answer, (place, value) = list(super().step(actions)), self._lie
        answer[place] = value
        return tuple(answer)


@pytest.mark.parametrize(
    ("place", "value", "expected"),
    [
        (1, DeviceTensor(np.full(NUM, np.nan)), "environment 7 gave the reward nan: it must be finite"),
        (1, DeviceTensor(np.zeros((NUM, 1))), "gave the rewards array"),
        (2, DeviceTensor(np.zeros(NUM)), "gave terminated array"),
        (0, {"x": DeviceTensor(np.zeros((NUM, 2), np.float32))}, "it must be one with 'b/0'"),
        (4, {"num_frames": DeviceTensor(np.full(NUM, -1))}, "environment 7 gave num_frames = np.int64(-1)"),
        (4, None, "step gave"),
    ],
)
def test_lies_are_told_as_those_of_arrays(place: int, value: Any, expected: str, tmp_path: Path) -> None:
    """With the values, which are read for it."""

    class OfLies(RandomScenario):
        def make_envs(self, seats: Sequence[Seat]) -> Any:
            return Lies(super().make_envs(seats), place, value)

    path, _ = meter(tmp_path / "run", NUM + 2)
    batch = make_counted_batch(OfLies(5, MODES[0], is_native=True), seats_of(NUM), tmp_path / "run", path)
    batch.reset()
    with pytest.raises(ValueError, match=r"^environment") as raised:
        batch.step(np.zeros(NUM, int))
    assert expected in str(raised.value)
    batch.close()


def test_what_is_no_vector_environment_is_refused(tmp_path: Path) -> None:
    """It says nothing of itself."""

    class OfNothing(RandomScenario):
        def make_envs(self, seats: Sequence[Seat]) -> Any:
            del seats
            return object()

    path, _ = meter(tmp_path / "run", NUM + 2)
    with pytest.raises(ValueError, match=r"^make_envs gave metadata"):
        make_counted_batch(OfNothing(5, MODES[0]), seats_of(NUM), tmp_path / "run", path)


ARRAYS = """
import sys
import tempfile
from pathlib import Path
import numpy as np
from gymnasium.vector import AutoresetMode
from rlbench.harness.contract.envs import make_counted_batch
from tests.harness.metering.batches.vector_scenarios import RandomScenario, meter, seats_of

folder = Path(tempfile.mkdtemp(dir=sys.argv[1])) / "run"
path, _ = meter(folder, 4)
batch = make_counted_batch(RandomScenario(5, AutoresetMode.SAME_STEP, True), seats_of(2), folder, path)
batch.reset()
batch.step(np.zeros(2, int))
sys.exit(bool({"torch", "jax"} & set(sys.modules)))
"""


def test_arrays_load_no_library_of_tensors(tmp_path: Path) -> None:
    """A worker process without tensors stays as small as it was."""
    assert subprocess.run([sys.executable, "-c", ARRAYS, str(tmp_path)], check=False).returncode == 0
