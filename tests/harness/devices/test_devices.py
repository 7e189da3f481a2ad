from __future__ import annotations

import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rlbench.harness.contract.device import Place
from rlbench.harness.contract.network_costs import NetworkCosts
from rlbench.harness.contract.settings import GpuCosts, Message
from rlbench.harness.devices import booking, kinds
from rlbench.harness.devices.emulated_gpu import EmulatedCore, EmulatedGpu, cost_s, gpu_path, sleep_until
from rlbench.harness.devices.kinds import CpuDevice, check_gpus, choose_device, gpu_indices, make_device
from rlbench.harness.plan.registry import load_scenario
from tests.harness.runs import PATIENCE_S

COSTS = GpuCosts(
    render_s=0.01,
    infer_fixed_s=0.02,
    infer_item_s=0.001,
    prepare_s=0.05,
    learn_item_s=0.002,
    render_while_learning_factor=4.0,
    learn_while_rendering_factor=2.0,
    actor_infer_s=0.04,
    cores=2,
    network=NetworkCosts(
        synchronize_s=0.03, synchronize_doubling_s=0.01, latency_s=0.002, bytes_per_s=1e6, weights_bytes=5e4
    ),
)

CHILD = """
import json, sys, time
from pathlib import Path
from rlbench.harness.devices.emulated_gpu import EmulatedGpu
from rlbench.harness.contract.settings import GpuCosts
path, costs, count = Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
gpu = EmulatedGpu(path, GpuCosts(**costs), 1)
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps([gpu.reserve("render", 1) for _ in range(count)]), flush=True)
sys.stdin.readline()
"""


def start_child(path: Path, render_s: float, count: int) -> subprocess.Popen[str]:
    """A process that reserves `count` renderings as soon as it is told to."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), json.dumps({"render_s": render_s}), str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def go(child: subprocess.Popen[str]) -> None:
    """Lets a child take its next step."""
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def test_costs_are_those_of_the_profile() -> None:
    """Rendering and learning cost by the item, inference a fixed part too, preparing once."""
    assert cost_s(COSTS, "render", 3) == pytest.approx(0.03)
    assert cost_s(COSTS, "infer", 4) == pytest.approx(0.024)
    assert cost_s(COSTS, "prepare", 1000) == pytest.approx(0.05)
    assert cost_s(COSTS, "learn", 5) == pytest.approx(0.01)


@pytest.mark.usefixtures("clock")
def test_work_of_a_lane_is_done_one_after_the_other(tmp_path: Path) -> None:
    """Rendering and inference queue behind each other, in the order in which they came."""
    gpu = EmulatedGpu(tmp_path / "gpu", COSTS, 1)
    ends = [gpu.reserve("render", 1), gpu.reserve("infer", 0), gpu.reserve("render", 2)]
    assert ends == pytest.approx([100.01, 100.03, 100.05], abs=1e-6)
    assert gpu.busy_s() == pytest.approx(0.05)


def test_reservations_of_many_processes_are_first_come_first_served(tmp_path: Path) -> None:
    """Reservations of all processes lie end to end, none overlaps another, and their sum is the busy time."""
    path, cost, count = tmp_path / "gpu", 0.0005, 200
    gpu = EmulatedGpu(path, GpuCosts(render_s=cost), 1)
    children = [start_child(path, cost, count) for _ in range(3)]
    for child in children:
        go(child)
    ends = []
    for child in children:
        assert child.stdout is not None
        mine = json.loads(child.stdout.readline())
        assert mine == sorted(mine)
        ends += mine
    for child in children:
        child.communicate("\n", timeout=PATIENCE_S)
    ends.sort()
    assert len(set(ends)) == len(ends) == 3 * count
    assert min(after - before for before, after in itertools.pairwise(ends)) >= cost * 0.999
    assert gpu.busy_s() == pytest.approx(3 * count * cost)


def test_reservations_of_threads_that_opened_the_same_gpu_do_not_overlap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Environments that step in threads of one process have an object each, and the kernel's lock is the process's."""

    def end_late(*args: float) -> float:
        time.sleep(0.0001)  # others run between the reading and the writing of the clock
        return end_beside(*args)

    end_beside = booking.end_beside
    monkeypatch.setattr(booking, "end_beside", end_late)
    path, cost, count = tmp_path / "gpu", 0.0005, 50
    gpus = [EmulatedGpu(path, GpuCosts(render_s=cost), 1) for _ in range(4)]
    with ThreadPoolExecutor(len(gpus)) as threads:
        ends = sorted(threads.map(lambda number: gpus[number % len(gpus)].reserve("render", 1), range(4 * count)))
    assert min(after - before for before, after in itertools.pairwise(ends)) >= cost * 0.999
    assert gpus[0].busy_s() == pytest.approx(4 * count * cost)


def test_a_killed_process_frees_what_it_held(tmp_path: Path) -> None:
    """The lock of a process that is killed while it holds it is free at once, and the GPU goes on."""
    path = tmp_path / "gpu"
    gpu = EmulatedGpu(path, COSTS, 1)
    program = (
        "import fcntl, sys, time\n"
        f"file = open({str(path)!r}, 'r+b')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        waiting = start_child(path, 0.01, 1)
        go(waiting)
        holder.send_signal(signal.SIGKILL)
        assert waiting.stdout is not None
        assert len(json.loads(waiting.stdout.readline())) == 1
        waiting.communicate("\n", timeout=PATIENCE_S)
    assert gpu.busy_s() == pytest.approx(0.01)


class Clock:
    """A clock that only moves when somebody sleeps, and then a little too far."""

    OVERSHOOT_S = 0.0001

    def __init__(self) -> None:
        self.now_s = 100.0

    def sleep(self, seconds: float) -> None:
        """Moves it."""
        self.now_s += seconds + self.OVERSHOOT_S


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replaces this process's clock, at 100 s."""
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now_s)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    return clock


def test_lanes_slow_each_other_and_busy_time_is_their_union(tmp_path: Path, clock: Clock) -> None:
    """Work is slower for as long as the other lane is busy too; time that both are busy counts once."""
    gpu = EmulatedGpu(tmp_path / "gpu", COSTS, 1)
    assert gpu.reserve("learn", 50) == pytest.approx(100.1)  # alone: 0.1 s
    assert gpu.reserve("render", 1) == pytest.approx(100.04)  # while learning: 4 x 0.01 s
    assert gpu.reserve("render", 1) == pytest.approx(100.08)
    assert gpu.busy_s() == pytest.approx(0.14)
    assert gpu.await_end("learn", 100.1) == pytest.approx(100.14)  # half as fast for 0.08 s
    clock.now_s = 100.2
    assert gpu.reserve("render", 1) == pytest.approx(100.21)  # alone again
    assert gpu.reserve("prepare", 1) == pytest.approx(100.255)  # 0.01 s of its 0.05 s beside rendering, half as fast
    assert gpu.busy_s() == pytest.approx(0.14 + 0.055)


def test_real_work_counts_against_its_cost(tmp_path: Path, clock: Clock) -> None:
    """Work inside a reservation takes the longer of its own and the profile's time, not the sum."""
    gpu = EmulatedGpu(tmp_path / "gpu", COSTS, 1)
    with gpu.busy("prepare", 1):  # 0.05 s
        clock.now_s += 0.04
    assert clock.now_s == pytest.approx(100.05, abs=0.001)
    with gpu.busy("prepare", 1):
        clock.now_s += 0.06
    assert clock.now_s == pytest.approx(100.11, abs=0.001)
    assert gpu.busy_s() == pytest.approx(0.1)


def test_an_overshooting_sleep_does_not_add_up(tmp_path: Path, clock: Clock) -> None:
    """Work that waits in the queue is done when the sum of the costs has passed, however late each sleep wakes."""
    gpu = EmulatedGpu(tmp_path / "gpu", COSTS, 1)
    for end in [gpu.reserve("render", 1) for _ in range(100)]:
        sleep_until(end)
    assert clock.now_s == pytest.approx(101.0, abs=2 * Clock.OVERSHOOT_S)


@pytest.mark.parametrize(
    ("message", "num_ranks", "expected_s"),
    [
        ("synchronize", 1, 0.0),
        ("synchronize", 2, 0.04),
        ("synchronize", 8, 0.06),
        ("all_reduce", 1, 0.0),
        ("all_reduce", 2, 2 * (0.002 + 0.025)),
    ],
)
def test_ranks_pay_for_agreeing_only_when_there_are_several(
    message: Message, num_ranks: int, expected_s: float, tmp_path: Path, clock: Clock
) -> None:
    """One rank has nobody to agree with; several take the profile's time, in which the GPU is free."""
    gpu = EmulatedGpu(tmp_path / "gpu", COSTS, num_ranks)
    gpu.communicate(message)
    assert clock.now_s == pytest.approx(100 + expected_s, abs=0.001)
    assert gpu.busy_s() == 0


def test_a_ranks_link_carries_one_message_after_the_other(tmp_path: Path, clock: Clock) -> None:
    """Weights that go to a rank queue on its link, whoever sends them; the question and the answer travel beside."""
    first, second, peer = (EmulatedGpu(gpu_path(tmp_path, rank), COSTS, 3) for rank in range(3))
    first.communicate("exchange", 2)
    assert clock.now_s == pytest.approx(100.05 + 2 * 0.002, abs=0.001)
    clock.now_s = 100.01
    second.communicate("exchange", 2)
    assert clock.now_s == pytest.approx(100.1 + 2 * 0.002, abs=0.001)
    clock.now_s = 100.02
    second.communicate("exchange", 0)
    assert clock.now_s == pytest.approx(100.07 + 2 * 0.002, abs=0.001), "another rank's link is free"
    assert peer.busy_s() == 0


def test_environments_share_cores_if_they_are_more(tmp_path: Path) -> None:
    """Each simulation takes the core that is free first; with a core for each environment nobody waits."""
    gpu = EmulatedGpu(tmp_path / "gpu", COSTS, 1)
    assert [gpu.simulated_at(10.0, seconds, 4) for seconds in (3.0, 1.0, 1.0, 5.0)] == [13.0, 11.0, 12.0, 17.0]
    assert gpu.simulated_at(30.0, 1.0, 4) == 31.0
    assert [gpu.simulated_at(10.0, 3.0, 2) for _ in range(3)] == [13.0] * 3
    none_stated = EmulatedGpu(tmp_path / "other", GpuCosts(), 1)
    assert [none_stated.simulated_at(10.0, 3.0, 16) for _ in range(3)] == [13.0] * 3
    assert gpu.busy_s() == 0


def test_a_policy_in_an_actor_takes_a_core(tmp_path: Path, clock: Clock) -> None:
    """Actors infer on the cores on which environments simulate, and keep the GPU free; messages cost them nothing."""
    gpu = EmulatedGpu(tmp_path / "gpu", COSTS, 2)
    core = EmulatedCore(gpu, 4)
    assert gpu.simulated_at(100.0, 1.0, 4) == 101.0
    with core.busy("infer", 1):
        clock.now_s += 0.01
    assert clock.now_s == pytest.approx(100.04, abs=0.001)
    with core.busy("infer", 3):
        clock.now_s += 0.2
    assert clock.now_s == pytest.approx(100.24, abs=0.001)
    core.communicate("all_reduce")
    assert clock.now_s == pytest.approx(100.24, abs=0.001)
    assert gpu.busy_s() == 0


def test_a_gpu_can_be_sent_to_another_process(tmp_path: Path) -> None:
    """A copy that went through pickle is the same GPU: it sees the same reservations."""
    gpu = EmulatedGpu(tmp_path / "gpu", COSTS, 2)
    copy = pickle.loads(pickle.dumps(gpu))  # noqa: S301  our own
    assert copy.reserve("render", 1) < gpu.reserve("render", 1)
    assert copy.busy_s() == gpu.busy_s() == pytest.approx(0.02)
    assert [one.simulated_at(1e9, 1.0, 3) for one in (copy, gpu, copy)] == [1e9 + 1, 1e9 + 1, 1e9 + 2]


def test_devices_of_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank has an emulated GPU of its own, a CUDA device by its local rank, or a share of the cores."""
    monkeypatch.setattr(kinds, "visible_gpus", lambda: [3, 5])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    scenario = load_scenario("emulated", "homogeneous", {})
    places = [Place(rank=rank, num_ranks=4, local_rank=rank) for rank in range(4)]
    for place in places:
        assert isinstance(make_device("emulated", place, scenario, tmp_path), EmulatedGpu)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"gpu{rank}.bin" for rank in range(4)]
    names = [make_device("cuda", place, scenario, tmp_path).torch_name for place in places]
    assert names == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert [make_device("cpu", place, scenario, tmp_path).num_threads for place in places] == [1] * 4
    assert CpuDevice(2).num_threads == 3
    assert CpuDevice(100).num_threads == 1


def test_which_gpus_a_run_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Telemetry reads the GPUs that the ranks use, by NVML's numbers, each once; none for other devices."""
    monkeypatch.setattr(kinds, "visible_gpus", lambda: [3, 5])
    assert gpu_indices("cuda", 1) == [3]
    assert gpu_indices("cuda", 4) == [3, 5]
    assert gpu_indices("emulated", 4) == []


def test_as_many_gpus_as_there_are_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused, unless ranks may share a GPU."""
    monkeypatch.setattr(kinds, "visible_gpus", lambda: [3, 5])
    check_gpus("cuda", 2, oversubscribe=False)
    check_gpus("cuda", 3, oversubscribe=True)
    with pytest.raises(ValueError, match=r"^--gpus 3: this machine has 2 GPUs"):
        check_gpus("cuda", 3, oversubscribe=False)


@pytest.mark.parametrize(("present", "chosen"), [([], "emulated"), ([0], "cuda")])
def test_default_device(present: list[int], chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a word, CUDA is used where there is a GPU, and emulated GPUs elsewhere; what is asked for is taken."""
    monkeypatch.setattr(kinds, "visible_gpus", lambda: present)
    assert choose_device(None) == chosen
    assert choose_device("cpu") == "cpu"
