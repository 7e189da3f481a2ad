import dataclasses
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rlbench.harness.contract.device import Seat
from rlbench.harness.contract.settings import LearnSettings
from rlbench.scenarios.pointnav import FAMILY, PointNav
from rlbench.scenarios.pointnav.geodesic import FreeSpace
from rlbench.scenarios.pointnav.task import MOVE_FORWARD, STOP, TURN_LEFT, TURN_RIGHT, PointNavEnv
from rlbench.scenarios.pointnav.workload import rooms_per_side, spread
from rlbench.scenarios.pointnav.world import FloorPlanWorld
from tests.scenarios.seats import seat_of


def world_of(env: PointNavEnv) -> FloorPlanWorld:
    """The environment's simulator."""
    assert isinstance(env.simulator, FloorPlanWorld)
    return env.simulator


class Oracle:
    """Turns to where a step forward brings it nearest to the goal by the map, and steps."""

    def __init__(self, env: PointNavEnv, radius_m: float) -> None:
        assert env.episode is not None
        self.env, self.distance = env, env.episode.distance
        self.space = FreeSpace.of(world_of(env).plan, radius_m)
        self.plan: list[int] = []

    def action(self) -> int:
        if not self.plan:
            (x, y, *_), heading = self.env.simulator.pose()
            if self.distance((x, y)) <= 0.2:
                return STOP
            cell = self.space.cells_at((x, y))[0]
            after = []
            for turns in range(-17, 19):
                angle = heading + math.radians(10 * turns)
                _, point, _ = self.space.slide(cell, (x, y), 0.25 * math.cos(angle), 0.25 * math.sin(angle))
                after.append((self.distance(point) + 0.002 * abs(turns), turns))
            _, turns = min(after)
            self.plan = [MOVE_FORWARD] + [TURN_LEFT if turns > 0 else TURN_RIGHT] * abs(turns)
        return self.plan.pop()


@pytest.mark.parametrize("workload", ["homogeneous", "heterogeneous"])
def test_an_agent_with_a_map_succeeds(workload: str) -> None:
    """Following the shortest path ends at the goal well within the time limit with high SPL, and rewards add up."""
    scenario = PointNav(workload=workload, resolution=8)
    spls = []
    for index in range(6):
        env = scenario.make_env(seat_of(index=index, seed=100 + index))
        for _ in range(5):
            _, info = env.reset()
            first = info["distance_to_goal"]
            oracle, done, rewards = Oracle(env, scenario.radius_m), False, []
            while not done:
                _, reward, terminated, truncated, info = env.step(oracle.action())
                rewards.append(reward)
                done = terminated or truncated
            assert info["success"] == 1.0
            assert len(rewards) < 0.75 * scenario.max_steps
            progress = first - info["distance_to_goal"]
            assert sum(rewards) == pytest.approx(progress - 0.01 * len(rewards) + 2.5 * info["spl"])
            spls.append(info["spl"])
    assert np.mean(spls) > 0.85


@pytest.mark.filterwarnings("ignore:.*WARN.*:UserWarning")  # gymnasium remarks on spaces without an upper bound
def test_it_is_a_gymnasium_environment() -> None:
    """The checker of gymnasium accepts it: spaces, dtypes, determinism of reset and step."""
    check_env(PointNav().make_env(seat_of()), skip_render_check=True)


def trace(seat: Seat, num_steps: int = 300) -> tuple[list[float], list[bytes]]:
    """Rewards and observations of a fixed row of actions, over several episodes and floor plans."""
    env = PointNav(resolution=16, max_steps=50, episodes_per_plan=2).make_env(seat)
    env.reset()
    rewards, images = [], []
    for action in np.random.default_rng(0).integers(0, 4, size=num_steps).tolist():
        observation, reward, terminated, truncated, _ = env.step(action)
        rewards.append(reward)
        images.append(observation["depth"].tobytes() + observation["goal"].tobytes())
        if terminated or truncated:
            env.reset()
    return rewards, images


def test_the_seat_decides_everything() -> None:
    """Two environments of one seed are equal to the bit over episodes and plans; another seed differs at once."""
    assert trace(seat_of(seed=3)) == trace(seat_of(seed=3))
    assert trace(seat_of(seed=3), 1) != trace(seat_of(seed=4), 1)


def test_observations_are_new_arrays_within_the_space() -> None:
    """A later step does not write into an earlier observation, and all of them are in the observation space."""
    scenario = PointNav(resolution=16)
    env = scenario.make_env(seat_of())
    first, _ = env.reset()
    copy = {key: value.copy() for key, value in first.items()}
    for action in (MOVE_FORWARD, TURN_LEFT, MOVE_FORWARD):
        observation, *_ = env.step(action)
        assert scenario.observation_space.contains(observation)
        assert env.observation_space == scenario.observation_space
    assert all((first[key] == copy[key]).all() for key in first)


def test_walking_into_a_wall_is_reported_and_slides() -> None:
    """Keeping on forward ends at a wall: `collided` is true and the agent stays in the free space."""
    env = PointNav(resolution=8).make_env(seat_of())
    env.reset()
    infos = [env.step(MOVE_FORWARD)[4] for _ in range(40)]
    assert infos[-1]["collided"]
    space = FreeSpace.of(world_of(env).plan, 0.15)
    point, _ = env.simulator.pose()
    assert space.cells_at((point[0], point[1]))


@pytest.mark.parametrize(("episodes_per_plan", "plans"), [(0, 1), (1, 6), (3, 2)])
def test_plans_change_as_often_as_told(episodes_per_plan: int, plans: int) -> None:
    """A new floor plan after every so many episodes; 0 keeps the first."""
    env = PointNav(resolution=8, episodes_per_plan=episodes_per_plan).make_env(seat_of())
    seen = set()
    for _ in range(6):
        env.reset()
        seen.add(world_of(env).plan)
    assert len(seen) == plans


def test_homogeneous_environments_are_alike_and_differ_by_seed() -> None:
    """All have the same settings of plans, and each its own plan."""
    scenario = PointNav(resolution=8)
    envs = [scenario.make_env(seat_of(index=index, seed=index)) for index in range(4)]
    for env in envs:
        env.reset()
    assert {scenario.plan_settings(index) for index in range(64)} == {scenario.plan_settings(0)}
    assert len({world_of(env).plan for env in envs}) == 4


def test_heterogeneous_ranks_have_mixes_that_differ() -> None:
    """Within each of 8 ranks plan areas differ at least tenfold; between ranks their sums do, twofold."""
    areas = np.array([[rooms_per_side(spread(8 * rank + index)) ** 2 for index in range(8)] for rank in range(8)])
    assert (areas.max(axis=1) / areas.min(axis=1) >= 10).all()
    assert areas.sum(axis=1).max() / areas.sum(axis=1).min() >= 2
    scenario = PointNav(workload="heterogeneous")
    sides = {scenario.plan_settings(seat_of(rank=rank, index=0).global_index).num_rows for rank in range(8)}
    assert len(sides) > 4


def test_sizes_are_log_spaced_from_small_to_large() -> None:
    """Shares 0 and 1 are the smallest and the largest plan; one half is their geometric mean."""
    assert [rooms_per_side(share) for share in (0.0, 0.5, 1.0)] == [2, 10, 48]
    assert rooms_per_side(1.0, 12) == 12
    assert all(0 <= spread(index) < 1 for index in range(1000))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("workload", "mixed"),
        ("num_envs", 0),
        ("rollout_steps", 0),
        ("resolution", 4),
        ("max_steps", 0),
        ("max_distance_m", 0.5),
        ("radius_m", 0.5),
        ("episodes_per_plan", -1),
    ],
)
def test_bad_fields_are_refused(field: str, value: Any) -> None:
    """A field out of range is refused with its name and value; an unknown workload lists the known ones."""
    with pytest.raises(ValueError, match=rf"{field}={value}: (must be|unknown; known: homogeneous, heterogeneous)"):
        dataclasses.replace(PointNav(), **{field: value})


def test_the_family_makes_the_scenario() -> None:
    """It is always available, makes both workloads, and refuses variants."""
    assert FAMILY.unavailable() is None
    scenario = FAMILY.make("", "heterogeneous")
    assert (scenario.name, scenario.workload, int(scenario.action_space.n)) == ("pointnav", "heterogeneous", 4)
    assert isinstance(scenario.learn, LearnSettings)
    with pytest.raises(ValueError, match="pointnav/large: unknown"):
        FAMILY.make("large", "homogeneous")
    with pytest.raises(ValueError, match="known: homogeneous, heterogeneous"):
        FAMILY.make("", "odd")


def test_environment_workers_import_nothing_heavy() -> None:
    """Making and stepping an environment imports no torch, no trimesh and no habitat-sim."""
    code = (
        "import sys; from rlbench.scenarios.pointnav import PointNav; from tests.scenarios.seats import seat_of\n"
        "[__import__(name) for name in PointNav().preload]\n"
        "env = PointNav().make_env(seat_of()); env.reset(); env.step(1)\n"
        "sys.exit(', '.join({'torch', 'trimesh', 'habitat_sim', 'pandas'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
