"""One learner for several machines: what an environment server does is what workers of the learner's machine would do.

The machines are one: ranks are told otherwise, and reach each other through sockets all the same. Real machines (with
network namespaces for it) are in tests/nodes.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from rlbench.scenarios.emulated.env import NUM_CUES, OBSERVATION_SPACE
from rlbench.systems.engine.workers import env_wire as wire
from rlbench.systems.engine.workers.tables import SharedTable, rollout_columns
from rlbench.systems.policies.policy import build_policy
from tests.systems.actions import choices
from tests.systems.engine.cells import make_cell, profile
from tests.systems.engine.rank.test_weights_arrive import log_probs_with
from tests.systems.engine.ranks import same_weights
from tests.systems.engine.recorded import Recorded, record_alone, record_in_turn

NUM_ENVS, NUM_RANKS = 4, 4
STREAM = "rollout.num_steps=4:rollout.batch=64:learn.learning_rate=0.01"
SYSTEMS = (
    f"impala:{STREAM}",  # first, so that all workers are forked from a server that has torch already
    f"impala:{STREAM}:overlap=alternate",
    f"appo:{STREAM}",
    f"appo:{STREAM}:collect=dynamic",
    f"appo:{STREAM}:overlap=alternate",
)


SHORT = "pointnav:max_steps=6:num_envs=2:rollout_steps=16:learn.num_minibatches=2"
"""Most of its episodes are truncated."""
CUT = "where episodes are cut"
IN_STEP = {"one machine": NUM_RANKS, "two of each machine": 2, "three and one": 3}
"""Ranks of a machine."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recorded]:
    """Runs on two machines of two ranks, with four environments for each rank, or two; the same ranks run them all."""
    folder = tmp_path_factory.mktemp("runs")
    scenario = profile(folder, episode_steps=10.0)
    cells = {name: make_cell(name, scenario, iterations=20, gpus=NUM_RANKS, device="emulated") for name in SYSTEMS}
    cells[CUT] = make_cell(f"impala:{STREAM}", SHORT, iterations=24, gpus=NUM_RANKS)
    return record_in_turn(folder, cells, NUM_RANKS, dict.fromkeys(cells, NUM_RANKS // 2))


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> str:
    """With its settings."""
    return str(request.param)


@pytest.fixture
def run(system: str, runs: dict[str, Recorded]) -> Recorded:
    """The run of a system."""
    return runs[system]


def test_every_step_of_both_machines_is_accounted_for(run: Recorded) -> None:
    """Steps of the wrappers, rank by rank, add up to what rank 0 learned, discarded or had in flight."""
    meters = [run.meter(rank) for rank in range(NUM_RANKS)]
    assert all(meter.total("env_steps") for meter in meters)
    accounted = sum(meters[0].count(0, name) for name in ("learned", "discarded", "in_flight"))
    assert sum(meter.total("env_steps") for meter in meters) == accounted
    assert all(meter.count(0, "learned") == 0 for meter in meters[1:])


def test_environments_of_both_machines_are_learned_from(system: str, run: Recorded) -> None:
    """All of them, and without a gap: each sample's previous action is that of the sample before.

    About equally where all of them step for each batch; where learning waits for none, they are as fast as they may be.
    """
    samples = run.samples()
    counts = np.bincount(samples["env"], minlength=NUM_RANKS * NUM_ENVS)
    assert len(counts) == NUM_RANKS * NUM_ENVS
    assert counts.min() > (counts.max() / 4 if "overlap=alternate" in system else 0)
    ends = 0
    for env in range(NUM_RANKS * NUM_ENVS):
        of_env = {name: column[samples["env"] == env] for name, column in samples.items()}
        ended = of_env["terminated"] | of_env["truncated"]
        goes_on = ~ended[:-1]
        assert np.array_equal(of_env["prev_action"][1:][goes_on], of_env["action"][:-1][goes_on])
        assert np.array_equal(of_env["episode_start"][1:], ended[:-1])
        assert np.isfinite(of_env["episode"][ended]).any(axis=1).all()
        ends += int(ended.sum())
    assert ends > NUM_RANKS * NUM_ENVS


def test_what_the_policy_said_is_what_it_says(system: str, run: Recorded) -> None:
    """Observations, states and weights arrive as they were: stored log-probabilities are those of their version."""
    samples, weights = run.samples(), run.weights_by_version()
    policy = build_policy("small", OBSERVATION_SPACE, choices(NUM_CUES), seed=0)
    there = samples["env"] >= NUM_ENVS * NUM_RANKS // 2
    versions = np.unique(samples["version"][there])
    assert len(versions) > (5 if "overlap=alternate" in system else 1)
    for version in versions:
        which = there & (samples["version"] == version)
        policy.load_state_dict(weights[version])
        stored = torch.from_numpy(samples["log_prob"][which])
        torch.testing.assert_close(log_probs_with(policy, samples, which), stored, rtol=1e-4, atol=1e-5)


def test_values_follow_truncated_episodes(runs: dict[str, Recorded]) -> None:
    """Actors on both machines estimate the value of the last observation of an episode that the time limit cut."""
    samples = runs[CUT].samples()
    for there in (False, True):
        cut = samples["truncated"] & ((samples["env"] >= NUM_RANKS) == there)
        assert cut.sum() > 10
        assert (samples["bootstrap"][cut] != 0).all()


def assert_same_samples(run: Recorded, other: Recorded) -> None:
    """Every column equal to the bit where it has a meaning, in the same order."""
    ours, theirs = run.samples(), other.samples()
    read = {"episode": ours["terminated"] | ours["truncated"], "bootstrap": ours["truncated"]}
    for name in ours:
        which = read.get(name, np.ones(len(ours["env"]), dtype=np.bool_))
        assert which.any()
        assert ours[name][which].tobytes() == theirs[name][which].tobytes(), name


def test_two_machines_learn_to_the_bit_what_one_does(tmp_path: Path) -> None:
    """Where all environments step together, the order of nothing depends on which machine they are on."""
    cells = dict.fromkeys(IN_STEP, make_cell("sync:average=central", SHORT, iterations=4, gpus=NUM_RANKS))
    one, *others = record_alone(tmp_path, cells, NUM_RANKS, IN_STEP).values()
    for other in others:
        assert_same_samples(one, other)
        assert same_weights(one, other)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection."""
    ends = socket.socketpair()
    yield ends
    for end in ends:
        end.close()


def test_messages_arrive_whole_however_they_are_cut(pair: tuple[socket.socket, socket.socket]) -> None:
    """Byte by byte, or several at once; nothing is waited for; the end is an error."""
    ours, theirs = pair
    inbox = wire.Inbox(theirs)
    assert inbox.read() == []
    for byte in wire.HEAD.pack(wire.STEP, 3, 2) + b"ab":
        assert inbox.read() == []
        ours.send(bytes([byte]))
    (message,) = inbox.read()
    assert (message.what, message.count, bytes(message.body)) == (wire.STEP, 3, b"ab")
    wire.send(ours, wire.BEGIN, 1, [b"x", b"yz"], 1.0)
    wire.send(ours, wire.STOP, 0, [], 1.0)
    assert [(each.what, bytes(each.body)) for each in inbox.read()] == [(wire.BEGIN, b"xyz"), (wire.STOP, b"")]
    ours.close()
    with pytest.raises(ConnectionResetError):
        inbox.read()


@pytest.mark.parametrize("acted", [False, True])
def test_rows_arrive_where_they_belong(acted: bool) -> None:
    """What is packed at one table's rows is at the other's after; anything but the right size is refused."""
    ours, theirs = (SharedTable(rollout_columns(OBSERVATION_SPACE, choices(NUM_CUES), 3, 12, 2)) for _ in range(2))
    generator = np.random.default_rng(0)
    for column in ours.columns:
        ours[column.name][:] = generator.integers(0, 2, column.shape)
    ours["truncated"][:] = [True, False, False] * 4
    envs, steps, nexts = np.array([2, 0]), np.array([3, 4]), np.array([7, 8])
    body = memoryview(b"".join(wire.WireRows(ours, acted=acted).pack(envs, steps, nexts)))
    rows = wire.WireRows(theirs, acted=acted)
    envs_there, steps_there, nexts_there = np.array([1, 2]), np.array([0, 6]), np.array([9, 10])
    rows.unpack(body, envs_there, steps_there, nexts_there)
    for name in ("reward", "terminated", "truncated", "episode", *(("action", "value", "version") if acted else ())):
        assert np.array_equal(theirs[name][steps_there], ours[name][steps])
    for name in ("prev_action", "episode_start", "obs/cue", *(("state",) if acted else ())):
        assert np.array_equal(theirs[name][nexts_there], ours[name][nexts])
    if not acted:
        assert np.array_equal(theirs["final/cue"][1], ours["final/cue"][2])
        assert not theirs["final/cue"][2].any(), "its episode goes on"
    for wrong in (body[:-1], memoryview(bytes(body) + b"x")):
        with pytest.raises(ValueError, match="ranks differ"):
            rows.unpack(wrong, envs_there, steps_there, nexts_there)
