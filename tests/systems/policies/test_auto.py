from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rlbench.systems.policies.auto import AutoEncoder, Grid, GridTrunk
from rlbench.systems.policies.encoders import NATURE, ConvEncoder
from rlbench.systems.spaces.layout import Layout
from rlbench.systems.spaces.observations import leaves_of

PICTURE = Box(0, 255, (84, 84, 4), np.uint8)
GRID = Box(0, 255, (7, 7, 3), np.uint8)
NUMBERS = Box(-np.inf, np.inf, (17,), np.float64)


def observed(of: gymnasium.Space[Any], num: int, seed: int = 0) -> dict[str, Tensor]:
    """`num` random observations of a space, by its leaves' keys."""
    of.seed(seed)
    samples = [of.sample() for _ in range(num)]
    return {
        leaf.key: torch.from_numpy(np.stack([np.asarray(leaf.read(sample), leaf.dtype) for sample in samples]))
        for leaf in leaves_of(of)
    }


def count(module: nn.Module) -> int:
    """Parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


def towers(num_in: int, num_layers: int) -> int:
    """Parameters of two towers of tanh layers of 64."""
    return 2 * (64 * (num_in + 1) + (num_layers - 1) * 64 * 65)


def test_vectors() -> None:
    """PPO section 6.1: two tanh layers of 64 for each head, with no weight in common."""
    encoder = AutoEncoder(Layout.of(NUMBERS))
    assert encoder.vectors is not None
    assert count(encoder) == towers(17, 2)
    assert [type(layer) for layer in encoder.vectors.policy] == [nn.Linear, nn.Tanh] * 2
    obs = observed(NUMBERS, 5)
    features = encoder(obs)
    policy, value = encoder.for_heads(features)
    assert (encoder.num_features, encoder.num_value_features) == (128, 64)
    numbers = obs["observation"].float()
    assert torch.equal(policy, encoder.vectors.policy(numbers))
    assert torch.equal(value, encoder.vectors.value(numbers))
    torch.autograd.backward(policy.sum())
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in encoder.vectors.value.parameters())


def test_a_picture() -> None:
    """One picture goes through the network of policy `nature`, which both heads read, and gives the same to the bit."""
    layout = Layout.of(PICTURE)
    encoder, nature = AutoEncoder(layout), ConvEncoder(layout, "nature", NATURE)
    nature.load_state_dict(encoder.pictures[0].state_dict())
    obs = observed(PICTURE, 3)
    features = encoder(obs)
    assert count(encoder) == count(nature)
    assert torch.equal(features, nature(obs))
    assert encoder.for_heads(features) == (features, features)


def test_a_grid() -> None:
    """MiniGrid's 7x7x3 symbols, undivided, go through the network of rl-starter-files, written out here."""
    encoder = AutoEncoder(Layout.of(GRID))
    convs = nn.Sequential(
        nn.Conv2d(3, 16, (2, 2)),
        nn.ReLU(),
        nn.MaxPool2d((2, 2)),
        nn.Conv2d(16, 32, (2, 2)),
        nn.ReLU(),
        nn.Conv2d(32, 64, (2, 2)),
        nn.ReLU(),
    )
    actor, critic = (nn.Sequential(nn.Linear(((7 - 1) // 2 - 2) ** 2 * 64, 64), nn.Tanh()) for _ in range(2))
    (grid,) = encoder.grids
    assert isinstance(grid, Grid)
    convs.load_state_dict(dict(zip(convs.state_dict(), grid.trunk.state_dict().values(), strict=True)))
    actor.load_state_dict(grid.towers.policy.state_dict())
    critic.load_state_dict(grid.towers.value.state_dict())
    obs = {"observation": torch.randint(0, 11, (5, 7, 7, 3), dtype=torch.uint8)}
    embedding = convs(obs["observation"].float().permute(0, 3, 1, 2)).flatten(1)
    policy, value = encoder.for_heads(encoder(obs))
    torch.testing.assert_close(policy, actor(embedding))
    torch.testing.assert_close(value, critic(embedding))


@pytest.mark.parametrize("height", [1, 2, 3, 4, 6, 7, 8, 35])
@pytest.mark.parametrize("width", [3, 7, 50])
def test_grids_of_any_size(height: int, width: int) -> None:
    """However small a grid is, something is left of it; the pooling is there from 7 cells on."""
    trunk = GridTrunk((2, height, width))
    assert trunk(torch.zeros(3, 2, height, width)).shape == (3, trunk.num_features)
    assert any(isinstance(layer, nn.MaxPool2d) for layer in trunk) == (min(height, width) >= 7)


def test_parts_are_joined() -> None:
    """Each part has its own network; a picture's features go to both heads, the others have a tower for each."""
    of = Dict({"a": Dict({"grid": GRID, "seen": PICTURE}), "facing": Discrete(4), "speed": Box(-1, 1, (2,))})
    encoder = AutoEncoder(Layout.of(of))
    grid, picture, vectors = (AutoEncoder(Layout.of(each)) for each in (GRID, PICTURE, Box(-1, 1, (6,))))
    assert count(encoder) == sum(map(count, (grid, picture, vectors)))
    assert encoder.num_features == 2 * (512 + 64 + 64)
    obs = observed(of, 3)
    policy, value = encoder.for_heads(encoder(obs))
    assert torch.equal(policy[:, :512], value[:, :512])
    for part in (slice(512, 576), slice(576, 640)):
        assert not torch.equal(policy[:, part], value[:, part])


def test_two_pictures_have_a_network_each() -> None:
    """Pictures of different sizes are read side by side, and `depth` is a picture too."""
    of = Dict({"depth": Box(0, 20, (1, 40, 44), np.float32), "pixels": Box(0, 255, (3, 36, 36), np.uint8)})
    encoder = AutoEncoder(Layout.of(of))
    assert encoder(observed(of, 2)).shape == (2, 1024)
    assert encoder.num_value_features == 0


boxes = st.tuples(
    st.lists(st.integers(1, 9), max_size=4).map(tuple), st.sampled_from([np.uint8, np.float32, np.int32])
).map(lambda of: Box(0, 9, of[0], of[1]))  # type: ignore[arg-type]  # gymnasium names fewer types than it takes
counted = st.one_of(
    st.builds(Discrete, st.integers(1, 5), start=st.integers(-3, 3)),
    st.lists(st.integers(1, 4), min_size=1, max_size=3).map(MultiDiscrete),
    st.lists(st.integers(1, 3), min_size=1, max_size=3).map(MultiBinary),
)
spaces = st.recursive(
    boxes | counted | st.just(PICTURE) | st.just(GRID),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(Tuple)
        | st.dictionaries(st.sampled_from("abc."), inner, min_size=1).map(Dict)
    ),
    max_leaves=4,
)


@given(spaces, st.sampled_from(["hwc", "chw"]))
@settings(max_examples=60, deadline=None)
def test_any_space(of: gymnasium.Space[Any], image_order: str) -> None:
    """Whatever a space holds, its features have their number and are finite, and every weight has a gradient."""
    encoder = AutoEncoder(Layout.of(of, image_order))
    features = encoder(observed(of, 3))
    assert features.shape == (3, encoder.num_features)
    assert torch.isfinite(features).all()
    policy, value = encoder.for_heads(features)
    assert policy.shape == value.shape
    torch.autograd.backward(features.sum())
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def test_follows_the_device() -> None:
    """Nothing is tied to the CPU."""
    of = Dict({"grid": GRID, "seen": PICTURE, "facing": Discrete(4), "speed": NUMBERS})
    encoder = AutoEncoder(Layout.of(of)).to("meta")
    features = encoder({key: values.to("meta") for key, values in observed(of, 2).items()})
    assert features.device.type == "meta"
