"""Whose GPU does what when one rank learns for all (VER section 5.1)."""

from __future__ import annotations

import struct

import pytest

from rlbench.harness.devices.booking import BUSY_S
from rlbench.harness.devices.emulated_gpu import gpu_path
from tests.systems.engine.cells import make_cell, profile, run_in_turn
from tests.systems.engine.ranks import Run

RENDER_MS, NUM_ENVS = 0.5, 4
APPO = "appo:rollout.num_steps=8:rollout.batch=32"
TOGETHER = f"{APPO}:average.placement=together"


def busy_s(run: Run, num_ranks: int) -> list[float]:
    """For how long the GPU of each rank was busy."""
    clocks = [gpu_path(run.folder, number).read_bytes() for number in range(num_ranks)]
    return [float(struct.unpack_from("d", clock, 8 * BUSY_S)[0]) for clock in clocks]


def steps(run: Run, num_ranks: int) -> list[int]:
    """Env steps of each environment of the run."""
    return [run.meter(number).count(1 + env, "env_steps") for number in range(num_ranks) for env in range(NUM_ENVS)]


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_learning_and_inference_have_a_gpu_and_rendering_the_others(
    tmp_path_factory: pytest.TempPathFactory, num_ranks: int
) -> None:
    """`separate` renders on all GPUs but the learner's, in equal parts, and `together` on each rank's own.

    Where only rendering takes time, a GPU is busy for the steps of the environments that render there; where only
    learning and inference do, rank 0's alone is.
    """
    folder = tmp_path_factory.mktemp("placement")
    renders = profile(folder, "renders", render_ms=RENDER_MS, infer_ms=0.0, prepare_ms=0.0)
    thinks = profile(folder, "thinks", render_ms=0.0, infer_ms=0.2, prepare_ms=1.0)
    cells = {
        name: make_cell(system, scenario, iterations=4, device="emulated", gpus=num_ranks)
        for name, system, scenario in (
            ("separate", APPO, renders),
            ("together", TOGETHER, renders),
            ("thinks", APPO, thinks),
        )
    }
    runs = run_in_turn(folder, cells, num_ranks)
    separate, together = steps(runs["separate"], num_ranks), steps(runs["together"], num_ranks)
    on_separate = [sum(separate[other :: num_ranks - 1]) for other in range(num_ranks - 1)]
    on_together = [sum(together[NUM_ENVS * number :][:NUM_ENVS]) for number in range(num_ranks)]
    assert min(on_separate + on_together) > 0
    second = RENDER_MS / 1e3
    assert busy_s(runs["separate"], num_ranks) == pytest.approx([0, *(second * count for count in on_separate)])
    assert busy_s(runs["together"], num_ranks) == pytest.approx([second * count for count in on_together])
    learns, *others = busy_s(runs["thinks"], num_ranks)
    assert learns > 4 * 1e-3
    assert others == [0.0] * (num_ranks - 1)
