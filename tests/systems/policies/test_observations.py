from __future__ import annotations

from collections.abc import Callable

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from torch import Tensor

from rlbench.systems.policies.encoders import NATURE, ConvEncoder, Encoder, SmallEncoder
from rlbench.systems.policies.observations import joined_vectors, stacked_images
from rlbench.systems.policies.resnet import ResNetEncoder
from rlbench.systems.spaces.layout import MOST_CLASSES, Classes, Layout
from tests.systems.learn.rollouts import random_obs, space

SPACES = {
    "vectors": space(),
    "pixels": space(goal=False, pixels=(3, 64, 70)),
    "depth": space(depth=64),
    "both": space(pixels=(4, 64, 64), depth=64),
}
ENCODERS: dict[str, Callable[[Layout], Encoder]] = {
    "small": SmallEncoder,
    "conv": ConvEncoder,
    "nature": lambda layout: ConvEncoder(layout, "nature", NATURE),
    "resnet": ResNetEncoder,
}


def images_before(obs: dict[str, Tensor], keys: tuple[str, ...]) -> Tensor:
    """What policies read when images were called `pixels` and `depth` only, to the letter."""
    images = []
    if "pixels" in keys:
        images.append(obs["pixels"].to(torch.float32, copy=True).div_(255))
    if "depth" in keys:
        images.append(obs["depth"].to(torch.float32).clamp(0, 10.0) / 10.0)
    return images[0] if len(images) == 1 else torch.cat(images, 1)


@pytest.mark.parametrize("name", SPACES)
def test_known_entries_are_read_as_ever(name: str) -> None:
    """`pixels`, `depth` and vectors are laid out, scaled and joined as before there were others, to the bit."""
    of = SPACES[name]
    layout = Layout.of(of)
    shapes = {key: entry.shape for key, entry in of.spaces.items()}
    assert dict(layout.images) == {key: shape for key, shape in shapes.items() if key in {"pixels", "depth"}}
    assert list(layout.vectors.items()) == [("goal", 3)] * ("goal" in shapes)
    assert (layout.readings, layout.classes) == ({}, {})
    obs = random_obs(of, 5, torch.Generator().manual_seed(0))
    if layout.images:
        assert torch.equal(stacked_images(obs, layout, torch.float32), images_before(obs, tuple(layout.images)))
    if layout.vectors:
        assert torch.equal(joined_vectors(obs, layout, torch.float32), obs["goal"])


def small_before(encoder: SmallEncoder, obs: dict[str, Tensor]) -> Tensor:
    """`SmallEncoder.forward` as it was when images were called `pixels` and `depth` only, to the letter."""
    parts = []
    if "goal" in obs:
        sizes = obs["goal"].abs()
        parts += [obs["goal"].sign() * sizes.log1p(), torch.exp(-sizes), torch.exp(-4 * sizes)]
    if "depth" in obs:
        scan = encoder._scan(obs["depth"])
        parts += [scan / 10.0, torch.exp(-scan)]
    if "pixels" in obs:
        parts.append(encoder.convs(obs["pixels"].to(torch.float32) / 255))
    features: Tensor = encoder.hidden(torch.cat(parts, 1))
    return features


@pytest.mark.parametrize("name", SPACES)
def test_the_small_encoder_computes_what_it_did(name: str) -> None:
    """Its features of known entries are those of before, to the bit."""
    encoder = SmallEncoder(Layout.of(SPACES[name]))
    obs = random_obs(SPACES[name], 5, torch.Generator().manual_seed(0))
    assert torch.equal(encoder(obs), small_before(encoder, obs))


def test_weights_are_called_as_ever() -> None:
    """Names, order and shapes of encoders' weights, on which a seed's weights and files of weights rest."""
    small, conv = (kind(Layout.of(SPACES["both"])).state_dict() for kind in (SmallEncoder, ConvEncoder))
    assert {name: tuple(weights.shape) for name, weights in small.items()} == {
        "convs.0.weight": (16, 4, 8, 8),
        "convs.0.bias": (16,),
        "convs.2.weight": (16, 16, 3, 3),
        "convs.2.bias": (16,),
        "hidden.0.weight": (128, 3 * 3 + 2 * 16 + 16 * 9),
        "hidden.0.bias": (128,),
    }
    assert [name for name in conv if name.endswith("weight")] == [
        *(f"convs.{place}.weight" for place in (0, 2, 4)),
        "hidden.0.weight",
        "vectors.0.weight",
        "vectors.2.weight",
    ]


@pytest.mark.parametrize("inner", [Discrete(4, start=-1), MultiDiscrete([2, 3], start=[1, 0])])
def test_classes(inner: gymnasium.Space[object]) -> None:
    """Counted values become zeros and ones, one for each class, also where the first class is not 0."""
    layout = Layout.of(inner)
    assert layout.vectors == {"observation": 4 if isinstance(inner, Discrete) else 5}
    values = [-1, 2, 0] if isinstance(inner, Discrete) else [[1, 0], [2, 2], [1, 1]]
    expected = (
        [[1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]]
        if isinstance(inner, Discrete)
        else [[1, 0, 1, 0, 0], [0, 1, 0, 0, 1], [1, 0, 0, 1, 0]]
    )
    rows = joined_vectors({"observation": torch.tensor(values)}, layout, torch.float64)
    assert torch.equal(rows, torch.tensor(expected, dtype=torch.float64))


def test_classes_in_inference_and_in_training() -> None:
    """What is kept of a leaf's classes while acting may be used where there are gradients."""
    layout = Layout(images={}, vectors={"a": 7}, classes={"a": Classes(sizes=(3, 4), starts=(5, 6))})
    weight = torch.ones(7, 2, requires_grad=True)
    obs = {"a": torch.tensor([[5, 9]])}
    with torch.inference_mode():
        joined_vectors(obs, layout, torch.float32)
    torch.autograd.backward((joined_vectors(obs, layout, torch.float32) @ weight).sum())
    assert weight.grad is not None
    assert weight.grad[:, 0].tolist() == [1, 0, 0, 0, 0, 0, 1]


def test_other_vectors() -> None:
    """Flags, numbers without dimensions and Boxes of other ranks are flattened, in the order of the space."""
    of = Tuple(
        (Box(-9, 9, ()), MultiBinary((2, 2)), Box(-9, 9, (2, 2)), Box(-9, 9, (1, 2, 1, 2), np.int16), Box(0, 1, (0,)))
    )
    layout = Layout.of(of)
    assert dict(layout.vectors) == {"0": 1, "1": 4, "2": 4, "3": 4}
    obs = {
        "0": torch.tensor([1.5, 2.5]),
        "1": torch.tensor([[[0, 1], [1, 0]], [[1, 1], [0, 0]]], dtype=torch.int8),
        "2": torch.arange(8.0).reshape(2, 2, 2),
        "3": torch.arange(8, dtype=torch.int16).reshape(2, 1, 2, 1, 2),
    }
    assert joined_vectors(obs, layout, torch.float32).tolist() == [
        [1.5, 0, 1, 1, 0, 0, 1, 2, 3, 0, 1, 2, 3],
        [2.5, 1, 1, 0, 0, 4, 5, 6, 7, 4, 5, 6, 7],
    ]


def test_images_of_every_order() -> None:
    """Images with channels first, last and without any are stacked alike; symbols and fractions are not divided."""
    of = Dict(
        {
            "grey": Box(0, 255, (40, 50), np.uint8),
            "last": Box(0, 255, (40, 50, 3), np.uint8),
            "first": Box(0, 1, (2, 40, 50), np.float32),
            "symbols": Box(0, 10, (40, 50, 1), np.uint8),
        }
    )
    layout = Layout.of(of)
    assert layout.stacked == ("first", "grey", "last", "symbols")
    obs = {key: torch.from_numpy(np.stack([entry.sample(), entry.sample()])) for key, entry in of.spaces.items()}
    seen = stacked_images(obs, layout, torch.float32)
    assert seen.shape == (2, 2 + 1 + 3 + 1, 40, 50)
    assert torch.equal(seen[:, :2], obs["first"])
    assert torch.equal(seen[:, 2], obs["grey"] / 255)
    for channel in range(3):
        assert torch.equal(seen[:, 3 + channel], obs["last"][..., channel] / 255)
    assert torch.equal(seen[:, 6], obs["symbols"][..., 0].float())


def test_known_images_with_channels_last() -> None:
    """`pixels` and `depth` are read with the channels last where the scenario says so, and only there."""
    of = Dict({"pixels": Box(0, 255, (40, 48, 3), np.uint8), "depth": Box(0, 20, (40, 48, 1), np.float32)})
    with pytest.raises(ValueError, match=r"^observation 'depth': must have shape \(C, H, W\), .* set image_order=hwc"):
        Layout.of(of)
    layout = Layout.of(of, "hwc")
    assert dict(layout.images) == {"pixels": (3, 40, 48), "depth": (1, 40, 48)}
    obs = {"pixels": torch.from_numpy(of["pixels"].sample())[None], "depth": torch.full((1, 40, 48, 1), 15.0)}
    first = {key: image.permute(0, 3, 1, 2).contiguous() for key, image in obs.items()}
    assert torch.equal(stacked_images(obs, layout, torch.float32), images_before(first, ("pixels", "depth")))
    encoder = SmallEncoder(layout)
    torch.testing.assert_close(encoder(obs), small_before(encoder, first))


def test_pixels_that_are_no_bytes_are_not_divided() -> None:
    """Somebody's `pixels` may be floats from 0 to 1; the name alone says nothing of their size."""
    layout = Layout.of(Dict({"pixels": Box(0, 1, (3, 40, 40), np.float32)}))
    obs = {"pixels": torch.rand(2, 3, 40, 40)}
    assert torch.equal(stacked_images(obs, layout, torch.float32), obs["pixels"])


@pytest.mark.parametrize("kind", ENCODERS)
def test_every_kind_reads_what_it_can(kind: str) -> None:
    """Nested images with channels last, classes, flags and numbers go into the older encoders too."""
    of = Dict(
        {
            "camera": Dict({"rgb": Box(0, 255, (64, 64, 3), np.uint8)}),
            "facing": Discrete(4),
            "keys": MultiBinary(3),
            "speed": Box(-1, 1, ()),
        }
    )
    encoder = ENCODERS[kind](Layout.of(of))
    obs = {
        "camera/rgb": torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8),
        "facing": torch.tensor([0, 3]),
        "keys": torch.ones(2, 3, dtype=torch.int8),
        "speed": torch.zeros(2),
    }
    features = encoder(obs)
    assert features.shape == (2, encoder.num_features)
    assert torch.isfinite(features).all()
    policy, value = encoder.for_heads(features)
    assert policy is features
    assert value is features


@pytest.mark.parametrize(
    ("of", "message"),
    [
        (Dict({}), "observation space: must have an entry"),
        (Dict({"a": Box(0, 1, (0,))}), "observation space: must have an entry"),
        (Dict({"a": Text(2)}), "observation 'a': must be a Box, Discrete, .* is Text; leave it out"),
        (Dict({"depth": Box(0, 1, (3,))}), r"observation 'depth': must have shape \(C, H, W\), has \(3,\)"),
        (Dict({"depth": Box(0, 255, (1, 9, 9), np.uint8)}), "observation 'depth': must be metres as floats, is uint8"),
        (Dict({"pixels": Discrete(3)}), r"observation 'pixels': must be a Box, is Discrete\(3\)"),
        (Box(0, 255, (9, 9, 9), np.uint8), "observation 'observation': shape .* set image_order=hwc or chw"),
        (Discrete(MOST_CLASSES + 1), "observation 'observation': must have at most 65536 classes, has 65537"),
    ],
)
def test_refuses(of: gymnasium.Space[object], message: str) -> None:
    """A space that no network reads is refused in one line that says why."""
    with pytest.raises(ValueError, match=message) as refusal:
        Layout.of(of)
    assert "\n" not in str(refusal.value)


def test_images_of_two_sizes_are_for_auto() -> None:
    """Encoders that stack images say which are in the way, and what reads them."""
    layout = Layout.of(Dict({"a": Box(0, 255, (40, 40), np.uint8), "b": Box(0, 255, (40, 41), np.uint8)}))
    with pytest.raises(ValueError, match=r"^policy conv: 'a' and 'b' must have one size, have .*; use policy auto$"):
        ConvEncoder(layout)
