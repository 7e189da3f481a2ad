import importlib.util
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rlbench.harness.contract.settings import LearnSettings
from rlbench.scenarios.habitat import FAMILY, Habitat
from rlbench.scenarios.habitat.scenario import INSTALL
from rlbench.scenarios.habitat.scenes import choose_scene, find_scenes
from rlbench.scenarios.habitat.world import HabitatWorld, gpu_device_id
from rlbench.scenarios.pointnav.export import export_scenes
from rlbench.scenarios.pointnav.task import MOVE_FORWARD, STOP, TURN_LEFT, TURN_RIGHT, PointNavEnv
from tests.scenarios import fake_habitat_sim
from tests.scenarios.seats import seat_of


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[fake_habitat_sim.Simulator]]:
    """The double in habitat-sim's place; every simulator must have been closed at the end."""
    monkeypatch.setitem(sys.modules, "habitat_sim", fake_habitat_sim.module())
    fake_habitat_sim.Simulator.open.clear()
    yield fake_habitat_sim.Simulator
    left_open = len(fake_habitat_sim.Simulator.open)
    fake_habitat_sim.Simulator.open.clear()
    assert left_open == 0


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three exported floor plans of differing size: 2x2, 5x5 and 12x12 rooms."""
    folder = tmp_path_factory.mktemp("scenes")
    export_scenes(folder, 3, 0, "heterogeneous")
    return folder


@pytest.mark.usefixtures("simulator")
def test_an_episode_on_the_simulator(scenes: Path) -> None:
    """Turning and walking by the goal sensor alone in an open line ends in success; rewards add up as in `pointnav`."""
    env = Habitat(scenes=str(scenes), resolution=16, max_distance_m=2.5).make_env(seat_of(num_envs=4, seed=1))
    successes = 0
    for _ in range(12):
        observation, info = env.reset()
        first, rewards, done = info["distance_to_goal"], [], False
        while not done:
            distance, cos, sin = observation["goal"]
            if distance <= 0.18:
                action = STOP
            elif cos > math.cos(math.radians(6)):
                action = MOVE_FORWARD
            else:
                action = TURN_LEFT if sin > 0 else TURN_RIGHT
            observation, reward, terminated, truncated, info = env.step(action)
            rewards.append(reward)
            assert env.observation_space.contains(observation)
            done = terminated or truncated
        successes += info["success"] == 1.0
        progress = first - info["distance_to_goal"]
        assert sum(rewards) == pytest.approx(progress - 0.01 * len(rewards) + 2.5 * info["spl"], abs=1e-5)
    assert successes >= 8  # the others have a wall in the way
    env.close()


@pytest.mark.usefixtures("simulator")
def test_pose_and_depth_agree_with_the_plan_seen_from_above(scenes: Path) -> None:
    """Forward goes along the heading, left is counter-clockwise, heights stay, and depth is a copy within 0 to 10 m."""
    world = HabitatWorld(find_scenes(scenes)[0], "cpu", 16)
    world.place((1.5, 1.25, 0.0), 0.3)
    point, heading = world.pose()
    assert point == pytest.approx((1.5, 1.25, 0.0))
    assert heading == pytest.approx(0.3)
    before = world.depth()
    kept = before.copy()
    assert before.shape == (1, 16, 16)
    assert before.dtype == np.float32
    assert not world.act(MOVE_FORWARD)
    assert world.pose()[0] == pytest.approx((1.5 + 0.25 * math.cos(0.3), 1.25 + 0.25 * math.sin(0.3), 0.0), abs=1e-5)
    world.act(TURN_LEFT)
    assert world.pose()[1] == pytest.approx(0.3 + math.radians(10))
    assert (before == kept).all()
    assert (world.depth() != kept).any()
    assert 0 <= world.depth().min() <= world.depth().max() <= 10
    world.close()
    world.close()


@pytest.mark.usefixtures("simulator")
def test_points_are_on_the_largest_island(scenes: Path) -> None:
    """No point lies on top of a wall, none is NaN, and all of them have paths to each other."""
    world, rng = HabitatWorld(find_scenes(scenes)[1], "cpu", 16), np.random.default_rng(0)
    world.begin_episode(rng)
    points = [world.sample_point(rng) for _ in range(100)]
    distance = world.distances_to(points[0])
    assert all(point[2] == 0.0 for point in points)
    assert all(math.dist(points[0], point) - 1e-6 <= distance(point) < math.inf for point in points)
    assert distance((points[0][0], points[0][1], 2.5)) == math.inf
    world.close()


def test_the_seat_decides_the_episodes(simulator: type[fake_habitat_sim.Simulator], scenes: Path) -> None:
    """habitat-sim is seeded for each episode from the environment's stream: same seed, same episodes; else others."""

    def episodes(seed: int) -> list[object]:
        env = Habitat(scenes=str(scenes), resolution=16).make_env(seat_of(seed=seed))
        drawn: list[object] = []
        for _ in range(3):
            env.reset()
            assert env.episode is not None
            drawn.append((env.episode.start, env.episode.goal, env.episode.heading))
        assert len(set(simulator.open[0].seeds)) == 3
        env.close()
        return drawn

    assert episodes(1) == episodes(1)
    assert episodes(1) != episodes(2)


def test_the_device_says_which_gpu_renders() -> None:
    """-1 without CUDA (the CPU, emulated GPUs), else the GPU's local index."""
    assert [gpu_device_id(name) for name in ("cpu", "cuda", "cuda:0", "cuda:3")] == [-1, 0, 0, 3]


def test_a_simulator_that_fails_to_start_is_not_left_open(
    simulator: type[fake_habitat_sim.Simulator], scenes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scene without a floor is refused by name, and its simulator is closed."""
    monkeypatch.setattr(simulator, "recompute_navmesh", lambda *_: False)
    scene = find_scenes(scenes)[0]
    with pytest.raises(ValueError, match=rf"{scene.name}: habitat-sim finds no floor to walk on"):
        HabitatWorld(scene, "cpu", 16)
    assert not simulator.open


def sized(folder: Path, sizes: dict[str, int]) -> list[Path]:
    """Files of these sizes in bytes, as `find_scenes` finds them."""
    for name, size in sizes.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    return find_scenes(folder)


def test_scenes_are_found_below_the_folder_by_size(tmp_path: Path) -> None:
    """All .glb files but HM3D's semantic ones, small to large."""
    found = sized(tmp_path, {"b.glb": 30, "a/c.basis.glb": 10, "a/c.semantic.glb": 5, "a/readme.txt": 1, "d.glb": 20})
    assert [path.name for path in found] == ["c.basis.glb", "d.glb", "b.glb"]


def test_homogeneous_scenes_are_alike_and_heterogeneous_ones_differ(tmp_path: Path) -> None:
    """Homogeneous: within a factor 1.5 of the median, in turn. Heterogeneous: over all sizes, whatever the seed."""
    found = sized(tmp_path, {f"{size}.glb": size for size in (10, 90, 100, 110, 1000)})
    alike = [choose_scene(found, "homogeneous", index).name for index in range(4)]
    assert alike == ["90.glb", "100.glb", "110.glb", "90.glb"]
    assert {choose_scene(found, "heterogeneous", index) for index in range(40)} == set(found)


def test_without_a_folder_our_own_floor_plans_are_exported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They land in the user's cache, and a second environment finds them there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    scenario = Habitat()
    scene = scenario.scene_of(0)
    written = {path: path.stat().st_mtime_ns for path in scene.parent.iterdir()}
    assert tmp_path in scene.parents
    assert len(written) == 8
    assert scenario.scene_of(9) != scene
    assert {path: path.stat().st_mtime_ns for path in scene.parent.iterdir()} == written


@pytest.mark.usefixtures("simulator")
def test_the_environment_is_pointnavs(scenes: Path) -> None:
    """The very class that `pointnav` uses: same actions, reward, success and SPL."""
    scenario = Habitat(scenes=str(scenes), resolution=32)
    env = scenario.make_env(seat_of())
    assert type(env) is PointNavEnv
    assert env.observation_space == scenario.observation_space
    env.close()


def test_unavailable_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without habitat-sim the family says how to install it; with it, nothing."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    reason = FAMILY.unavailable()
    assert reason is not None
    assert INSTALL in reason
    assert "\n" not in reason
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    assert FAMILY.unavailable() is None


def test_the_family_makes_dd_ppos_settings() -> None:
    """4 environments, T 128, the ResNet, 2 epochs of 2 mini-batches; variants and bad fields are refused."""
    scenario = FAMILY.make("", "homogeneous")
    assert (scenario.num_envs, scenario.rollout_steps, scenario.policy) == (4, 128, "resnet")
    assert scenario.learn == LearnSettings()
    with pytest.raises(ValueError, match="habitat/gibson: unknown"):
        FAMILY.make("gibson", "homogeneous")
    with pytest.raises(ValueError, match=r"habitat\.scenes=/nowhere: must be a folder"):
        Habitat(scenes="/nowhere")
    with pytest.raises(ValueError, match=r"habitat\.resolution=1: must be at least 8"):
        Habitat(resolution=1)


def test_a_folder_without_scenes_is_refused(tmp_path: Path) -> None:
    """An empty folder and a missing one are named, with what to do."""
    with pytest.raises(ValueError, match=r"holds no \.glb scene; `rlbench scenes` writes some"):
        find_scenes(tmp_path)
    with pytest.raises(ValueError, match="no such folder"):
        find_scenes(tmp_path / "missing")
