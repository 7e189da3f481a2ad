from __future__ import annotations

import multiprocessing
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from rlbench.harness.processes import process
from rlbench.systems.engine.workers.acting_weights import BroadcastWeights, CopiedWeights, read_newest, weight_columns
from rlbench.systems.engine.workers.inference import Actor
from rlbench.systems.engine.workers.tables import SharedTable, rollout_columns
from rlbench.systems.policies.policy import Policy, build_policy
from tests.scenarios.seats import PlainDevice
from tests.systems.actions import choices
from tests.systems.engine.counting import SPACE
from tests.systems.engine.ranks import LIMIT_S, run_ranks

NUM_SEEN = 200
"""Versions that are seen before the writer is to end: a fixed number of writes may all fall between two reads."""
MOST_VERSIONS = 2**24
"""Whole numbers to this one are float32s."""
NUM_PARAMETERS = 20_000


def policy_and_actor() -> tuple[Policy, Actor]:
    """A policy, and an actor that acts with it."""
    policy = build_policy("small", SPACE, choices(4), seed=0)
    table = SharedTable(rollout_columns(SPACE, choices(4), 1, 2, policy.state_size))
    return policy, Actor(policy, table, PlainDevice("cpu"), torch.Generator())


@torch.no_grad()
def fill(policy: torch.nn.Module, value: float) -> None:
    """Gives all weights one value."""
    for parameter in policy.parameters():
        parameter.fill_(value)


@torch.no_grad()
def values_of(policy: torch.nn.Module) -> set[float]:
    """All values that weights have."""
    return {float(bound) for parameter in policy.parameters() for bound in (parameter.min(), parameter.max())}


def test_a_copy_changes_when_it_is_refreshed() -> None:
    """The sampler's copy stays as it is until it is refreshed, and then has the newest weights and their version."""
    learned, _ = policy_and_actor()
    acting, actor = policy_and_actor()
    weights = CopiedWeights(learned, acting, actor)
    for version in (1, 2):
        with weights.changing():
            fill(learned, float(version))
            weights.publish(version)
    assert actor.version == 0
    assert values_of(acting) != {2.0}
    weights.refresh()
    assert actor.version == 2
    assert values_of(acting) == {2.0}
    fill(learned, 9.0)  # a change that nobody has published
    weights.refresh()
    assert values_of(acting) == {2.0}


def test_a_copy_is_never_torn() -> None:
    """A thread changes weights, another copies them: the copy is always of one version, the one that it says."""
    learned, _ = policy_and_actor()
    acting, actor = policy_and_actor()
    fill(learned, 0.0)
    fill(acting, 0.0)
    weights = CopiedWeights(learned, acting, actor)
    written, seen = 0, {0}
    is_over = threading.Event()

    def write() -> None:
        nonlocal written
        while not is_over.is_set():
            with weights.changing():
                fill(learned, float(written + 1))
                written += 1
                weights.publish(written)
            time.sleep(1e-5)  # gradients are computed

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    deadline = time.monotonic() + LIMIT_S
    try:
        while len(seen) < NUM_SEEN:
            weights.refresh()
            assert values_of(acting) == {float(actor.version)}
            assert actor.version >= max(seen)
            seen.add(actor.version)
            assert time.monotonic() < deadline, f"{len(seen)} of {written} versions were seen"
    finally:
        is_over.set()
        writer.join(LIMIT_S)
    weights.refresh()
    assert values_of(acting) == {float(written)}


def test_a_change_in_the_middle_is_not_copied() -> None:
    """While the learner is inside `changing`, a refresh does not wait for its end and leaves the copy as it is."""
    learned, _ = policy_and_actor()
    acting, actor = policy_and_actor()
    weights = CopiedWeights(learned, acting, actor)
    before = values_of(acting)
    reader = threading.Thread(target=weights.refresh, daemon=True)
    with weights.changing():
        fill(learned, 5.0)
        weights.publish(1)
        reader.start()
        reader.join(LIMIT_S)
        assert not reader.is_alive()
        assert (values_of(acting), actor.version) == (before, 0)
    weights.refresh()
    assert (values_of(acting), actor.version) == ({5.0}, 1)


VERSIONS = 10
"""Of what is written k-th the version is k + VERSIONS."""


def halves_with(turn: int) -> dict[str, npt.NDArray[Any]]:
    """Two halves that hold what was written in a turn and in the one before."""
    halves = np.zeros((2, 8), np.float32)
    versions = np.zeros(2, np.int64)
    for each in (turn - 1, turn):
        halves[each % 2], versions[each % 2] = each, each + VERSIONS
    return {"weights": halves, "weights_version": versions, "weights_turn": np.array([turn])}


@pytest.mark.parametrize("overtakes", [0, 1, 2, 3, 6])
def test_a_reader_that_was_overtaken_reads_again(overtakes: int) -> None:
    """Whatever the writer does in the middle of a read, what counts is a whole read of one version."""
    table = halves_with(4)
    halves, versions, turn = table.values()
    reads: list[list[float]] = []

    def read(half: npt.NDArray[np.float32]) -> None:
        first = half[:4].tolist()
        if not reads:
            for _ in range(overtakes):
                newer = int(turn[0]) + 1
                halves[newer % 2], versions[newer % 2] = newer, newer + VERSIONS
                turn[0] = newer
            if overtakes:  # and it is about to write the next one
                halves[(int(turn[0]) + 1) % 2, 5] = turn[0] + 1
        reads.append(first + half[4:].tolist())

    assert read_newest(table, read) == 4 + overtakes + VERSIONS
    assert set(reads[-1]) == {4.0 + overtakes}


def test_the_newest_arrives() -> None:
    """Actors read, from shared memory, the parameters that the learner last published, in their order."""
    policy, _ = policy_and_actor()
    table = SharedTable(weight_columns(sum(parameter.numel() for parameter in policy.parameters())))
    weights = BroadcastWeights(policy, table)
    flats: list[npt.NDArray[np.float32]] = []
    for version in (0, 1, 2, 3, 7, 9):  # nobody need send every one of them on
        with torch.no_grad(), weights.changing():
            for parameter in policy.parameters():
                parameter.add_(1.0)
            weights.publish(version)
        weights.refresh()
        read = read_newest(table, lambda half: flats.append(half.copy()))
        assert read == version
        expected = torch.cat([parameter.detach().reshape(-1) for parameter in policy.parameters()])
        assert np.array_equal(flats[-1], expected.numpy())
    table.close()


def write_versions(table: SharedTable) -> None:
    """In a process of its own: publishes one version after the other, all of its weights alike, until it is stopped."""
    process.die_with_parent(os.getppid())
    weights = torch.nn.Linear(NUM_PARAMETERS, 1, bias=False)
    broadcast = BroadcastWeights(weights, table)
    for version in range(1, MOST_VERSIONS):
        fill(weights, float(version))
        broadcast.publish(version)
        if table["stop"][0]:
            return


def read_versions(folder: Path) -> None:
    """In a rank: reads while another process writes; leaves what it has seen."""
    table = SharedTable(weight_columns(NUM_PARAMETERS))
    writer = multiprocessing.get_context("spawn").Process(target=write_versions, args=(table,))
    writer.start()
    pieces: list[tuple[float, float]] = []
    seen: list[tuple[int, float, float]] = []
    versions: set[int] = set()
    try:
        while len(versions) < NUM_SEEN:
            version = read_newest(table, lambda half: pieces.append((float(half.min()), float(half.max()))))
            seen.append((version, *pieces[-1]))
            versions.add(version)
    finally:
        table["stop"][0] = True
        writer.join()
    np.save(folder / "seen.npy", np.array(seen))


def test_what_processes_share_is_never_torn(tmp_path: Path) -> None:
    """A process writes, another reads as fast as they can: every read is whole, of the version that it says."""
    run_ranks(read_versions, 1, tmp_path)
    version, least, most = np.load(tmp_path / "seen.npy").T
    assert (least == version).all()
    assert (most == version).all()
    assert (np.diff(version) >= 0).all()
    assert len(set(version.tolist())) >= NUM_SEEN, "the two did run at the same time"
