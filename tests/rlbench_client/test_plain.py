from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Text, Tuple

from rlbench.harness.contract.device import Place, Seat
from rlbench_client import given
from rlbench_client.flat import leaves_of, order_of, vector_of
from rlbench_client.plain import plain
from tests.libraries.spaces_scenario import FAMILY, SPACES, StrictEnv


def made(variant: str) -> StrictEnv:
    """An environment that refuses what is not in its space."""
    return StrictEnv(FAMILY.make(variant, "homogeneous"), 1)


@pytest.mark.parametrize("actions", ["row", "parts"])
@pytest.mark.parametrize("variant", ["arm", "grid-arm", "levers", "joint"])
def test_what_a_trainer_chooses_is_in_the_space(variant: str, actions: str) -> None:
    """Whatever numbers it samples, and what it sees is in the spaces that it is told."""
    if (variant, actions) == ("joint", "row"):
        actions = "parts"
    env = plain(made(variant), actions=actions)
    env.reset()
    env.action_space.seed(1)
    for _ in range(50):
        observation, *_ = env.step(env.action_space.sample())
        assert env.observation_space.contains(observation)


def test_parts_come_in_any_form() -> None:
    """A row, or a list of arrays; discrete ones may be floats, as a library keeps them beside others."""
    env = plain(made("joint"), actions="parts")
    assert [type(part).__name__ for part in env.action_space] == ["Discrete", "Box", "Discrete", "Discrete"]
    assert len(plain(made("levers"), actions="parts").action_space) == 2
    env.reset()
    env.step(np.array([2.0, 7.0, -7.0, 1.0, 0.0], np.float32))
    env.step([np.int32(2), np.array([7.0, -7.0], np.float32), 1, 0])
    numbers = plain(made("arm"), actions="row")
    np.testing.assert_array_equal(numbers.action(np.array([7.0, -7.0])), np.array([1.0, 0.0], np.float32))


def test_images_lie_channels_first_and_numbers_end_to_end() -> None:
    """Of a tree, images keep their names; a Discrete is one-hot."""
    env = made("both")
    shown = plain(env)
    assert set(shown.observation_space.spaces) == {"inner/seen", "vector"}
    observation = env.observation_space.sample()
    seen = shown.observation(observation)
    np.testing.assert_array_equal(seen["inner/seen"], observation["inner"]["seen"].transpose(2, 0, 1))
    one_hot = np.eye(2)[observation["mode"]]
    np.testing.assert_allclose(seen["vector"], [*observation["inner"]["felt"], *one_hot], rtol=1e-6)
    assert seen["vector"].dtype == np.float32


@pytest.mark.parametrize(
    ("space", "image_order", "order"),
    [
        (Box(0, 255, (3, 72, 128), np.uint8), "auto", "chw"),
        (Box(0, 255, (84, 84, 4), np.uint8), "auto", "hwc"),
        (Box(0, 255, (84, 84), np.uint8), "auto", "hw"),
        (Box(0, 255, (40, 48, 64), np.uint8), "hwc", "hwc"),
        (Box(0, 255, (7, 7, 3), np.uint8), "auto", None),
        (Box(0, 1, (3, 72, 128), np.float32), "auto", None),
        (Discrete(3), "auto", None),
    ],
)
def test_an_image_is_bytes_that_networks_can_read(space: Any, image_order: str, order: str | None) -> None:
    """With three axes or two, of at least 36x36; the smallest axis has the channels."""
    assert order_of(space, image_order) == order
    if order == "hw":
        assert plain(Fixed(space)).observation_space.shape == (1, 84, 84)


class Fixed(gymnasium.Env[Any, Any]):
    """An environment that has spaces and does nothing."""

    def __init__(self, space: Any) -> None:
        self.observation_space = space
        self.action_space = Discrete(2)


@pytest.mark.parametrize("variant", ["arm", "levers", "switches"])
def test_one_box_holds_all_numbers(variant: str) -> None:
    """An only Box stays as it is; else all leaves stand end to end."""
    space = SPACES[variant][0]
    box, observation = given._box_of(space), space.sample()
    joined = given._joined(space, observation)
    assert box.contains(joined)
    if variant == "arm":
        assert (box, joined.dtype) == (space, np.float64)
    else:
        np.testing.assert_array_equal(joined, vector_of(leaves_of(space), observation))


@pytest.mark.parametrize(
    ("space", "why"),
    [
        (SPACES["both"][0], "box=True: inner/seen of inner/felt, inner/seen, mode is no vector"),
        (Dict({"said": Text(3)}), "box=True: said: must be a Box, Discrete, MultiDiscrete or MultiBinary, is Text"),
    ],
)
def test_one_box_is_refused_where_it_would_be_none(space: Any, why: str) -> None:
    """An image beside others, and what has no numbers."""
    with pytest.raises(ValueError, match=why):
        given._box_of(space)


@pytest.mark.parametrize("variant", SPACES)
def test_actions_reach_the_scenario_as_its_space_has_them(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of a trainer get the dtype of the space, and trees of them pass through."""
    scenario = FAMILY.make(variant, "homogeneous")
    place = Place(rank=0, num_ranks=1, local_rank=0)
    seat = Seat(place=place, index=0, num_envs=4, seed=3, device=None)  # type: ignore[arg-type]  # it looks at no device
    monkeypatch.setattr(given, "_take_seat", lambda *_: (0, seat))
    env = given._kind(box=False)(None, scenario)
    env.reset()
    for _ in range(5):
        action = env.action_space.sample()
        env.step(action if isinstance(env.action_space, (Dict, Tuple)) else np.asarray(action, np.float64))
