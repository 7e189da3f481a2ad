from __future__ import annotations

from pathlib import Path

from rlbench.harness.metering.live import FIRST_ROLLOUT, LiveMeters, Snapshot
from rlbench.harness.metering.meter_file import SPANS, Block, MeterFile, meter_path
from tests.descriptors import open_files


def test_live_meters_sum_over_the_ranks(tmp_path: Path) -> None:
    """Ranks that have not started yet count nothing; then counters are summed, and the slowest iteration is shown."""
    meters = LiveMeters(tmp_path, range(2))
    assert meters.read() == Snapshot(phase="starting ranks, 0 of 2", iterations=0, learned=0, env_steps=0)
    for rank in (0, 1):
        if rank:
            assert meters.read().phase == "starting ranks, 1 of 2"
        file = MeterFile.create(meter_path(tmp_path, rank), num_envs=2)
        block = Block(file, 0)
        block.add("iteration", 3 + rank)
        block.add("learned", 100)
        block.set_phase(3)
        for env in (0, 1):
            Block(file, 1 + env).add("env_steps", 60)
    assert meters.read() == Snapshot(phase="learn", iterations=3, learned=200, env_steps=240)


def test_the_start_is_named_by_its_steps(tmp_path: Path) -> None:
    """Ranks come up, then processes that step environments; the first rollout lasts until something is learned."""
    meters = LiveMeters(tmp_path, range(1))
    phases = [meters.read().phase]
    file = MeterFile.create(meter_path(tmp_path, 0), num_envs=2)
    rank = Block(file, 0)
    phases.append(meters.read().phase)
    envs = [Block(file, 1)]
    phases.append(meters.read().phase)
    envs.append(Block(file, 2))
    phases.append(meters.read().phase)
    envs[0].add("env_steps", 1)
    for kind in ("simulate", "learn"):
        rank.set_phase(SPANS.index(kind))
        phases.append(meters.read().phase)
    rank.add("learned", 2)
    rank.set_phase(SPANS.index("infer"))
    phases.append(meters.read().phase)
    environments = [f"starting environments, {number} of 2" for number in range(3)]
    assert phases == ["starting ranks, 0 of 1", *environments, FIRST_ROLLOUT, "learn", "infer"]


def test_a_lost_rank_does_not_hold_the_display_up(tmp_path: Path) -> None:
    """What it had counted stays; how far the run is, the others say. It is news once, with or without a meter."""
    for rank, iterations in ((0, 9), (1, 2)):
        file = MeterFile.create(meter_path(tmp_path, rank), num_envs=1)
        Block(file, 0).add("iteration", iterations)
        Block(file, 0).set_phase(SPANS.index("learn" if rank == 0 else "infer"))
        Block(file, 1).add("env_steps", 10)
    meters = LiveMeters(tmp_path, range(3))
    assert meters.read().phase == "starting ranks, 2 of 3"
    assert [meters.lose(rank) for rank in (1, 2, 1)] == [True, True, False]
    assert meters.read() == Snapshot(phase="learn", iterations=9, learned=0, env_steps=20)


def test_closed_meters_hold_no_file(tmp_path: Path) -> None:
    """Not even where somebody still holds them: a sweep has as many files open in its last cell as in its first."""
    paths = [str(meter_path(tmp_path, rank)) for rank in range(2)]
    for path in paths:
        MeterFile.create(Path(path), num_envs=1).close()
    meters = LiveMeters(tmp_path, range(2))
    assert not set(paths) & set(open_files())
    meters.read()
    assert set(paths) <= set(open_files())
    meters.close()
    assert not set(paths) & set(open_files())
