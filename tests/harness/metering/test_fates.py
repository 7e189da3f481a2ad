from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from rlbench.harness.metering.fates import (
    DISCARDED,
    LEARNED,
    MOST_BLOCKS,
    NUM_BINS,
    FateFile,
    bin_of,
    fates_path,
    read_fates,
)
from rlbench.harness.metering.meter import RankMeter

NUM_ENVS = 5


class Literal:
    """Does for each env step by itself what `FateFile` does with arrays."""

    def __init__(self) -> None:
        self.by_length = np.zeros((2, NUM_BINS), np.int64)
        self.open = np.zeros((2, NUM_ENVS), np.int64)
        self.episodes = np.zeros(NUM_ENVS, np.int64)

    def settle(self, fate: int, env: int, length: int) -> None:
        """A step meets a fate; with it an episode of `length` steps ends, unless that is 0."""
        self.open[fate, env] += 1
        if length:
            self.by_length[:, length.bit_length() - 1] += self.open[:, env]
            self.open[:, env] = 0
            self.episodes[env] += 1


@pytest.mark.parametrize("seed", range(10))
def test_arrays_count_what_steps_do(seed: int, tmp_path: Path) -> None:
    """Any order of fates, of environments among each other and of ends of episodes: counts are those step by step."""
    generator = np.random.default_rng(seed)
    file, literal = FateFile(tmp_path / "fates", NUM_ENVS, 10, 0), Literal()
    lengths: dict[int, int] = defaultdict(int)
    totals = np.zeros((2, NUM_ENVS), np.int64)
    for _ in range(20):
        fate, envs = int(generator.integers(2)), generator.integers(NUM_ENVS, size=int(generator.integers(30)))
        ended = np.zeros(len(envs), np.int64)
        for number, env in enumerate(envs.tolist()):
            lengths[env] += 1
            if generator.random() < 0.2:
                ended[number], lengths[env] = lengths[env], 0
            literal.settle(fate, env, int(ended[number]))
            totals[fate, env] += 1
        file.settle(fate, envs, ended)
        file.end_iteration()
    fates = read_fates(tmp_path / "fates")
    assert fates is not None
    assert (fates.first_env, fates.num_whole, fates.cut) == (10, 20, None)
    for name in ("by_length", "open", "episodes"):
        assert getattr(fates, name).tolist() == getattr(literal, name).tolist(), name
    assert fates.totals.tolist() == totals.tolist()


def test_blocks_are_of_equally_many_iterations(tmp_path: Path) -> None:
    """However long a run is, from half of `MOST_BLOCKS` to all of them hold all of it; the last may not be whole."""
    file = FateFile(tmp_path / "fates", 1, 0, 0)
    num_iterations = 5 * MOST_BLOCKS + 3
    for iteration in range(num_iterations):
        file.settle(LEARNED, np.zeros(iteration, np.int64), np.zeros(iteration, np.int64))
        file.end_iteration()
    fates = read_fates(tmp_path / "fates")
    assert fates is not None
    assert fates.num_whole == num_iterations // 8
    sums = [sum(range(first, min(first + 8, num_iterations))) for first in range(0, num_iterations, 8)]
    assert fates.blocks[: len(sums), LEARNED, 0].tolist() == sums
    assert not fates.blocks[len(sums) :].any()


def test_what_a_cut_rollout_lacks_is_counted(tmp_path: Path) -> None:
    """By hand: of 4 steps due of each of two environments one has 3, the other none; discarded steps were not due."""
    meter = RankMeter(tmp_path, 3, 2)
    meter.settle(LEARNED, np.zeros(3, np.int64), np.zeros(3, np.int64))  # not opened: nobody asks
    meter.open_fates(2, first_env=6, steps_due=4)
    meter.settle(LEARNED, np.zeros(3, np.int64), np.zeros(3, np.int64))
    meter.settle(DISCARDED, np.ones(1, np.int64), np.zeros(1, np.int64))
    meter.left(np.array([0, 2]))
    meter.close()
    fates = read_fates(fates_path(tmp_path, 3))
    assert fates is not None
    assert fates.cut is not None
    assert (fates.cut.tolist(), fates.in_flight.tolist(), fates.totals.tolist()) == ([1, 4], [0, 2], [[3, 0], [0, 1]])


def test_bins_are_powers_of_two() -> None:
    """An episode of 2^k steps is the shortest of bin k; none is too long."""
    assert bin_of([1, 2, 3, 4, 7, 8, 2**31 - 1, 2**31, 2**52]).tolist() == [0, 1, 1, 2, 2, 3, 30, 31, 31]


def test_a_rank_that_never_counted_left_nothing(tmp_path: Path) -> None:
    """Neither a missing file nor one whose writer died as it made it is an error."""
    assert read_fates(tmp_path / "fates") is None
    (tmp_path / "fates").write_bytes(bytes(80))
    assert read_fates(tmp_path / "fates") is None
