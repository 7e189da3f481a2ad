from __future__ import annotations

import pytest
import torch
from torch import nn

from rlbench.systems.policies.encoders import ConvEncoder, SmallEncoder
from rlbench.systems.policies.policy import build_policy
from rlbench.systems.policies.resnet import ResNet50, ResNetEncoder
from rlbench.systems.spaces.layout import Layout
from tests.systems.actions import choices
from tests.systems.learn.rollouts import space

META = torch.device("meta")


def count(module: nn.Module) -> int:
    """Parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


def lstm(num_in: int, num_units: int) -> int:
    """Parameters of one LSTM layer with torch's two biases."""
    return 4 * num_units * (num_in + num_units + 2)


@pytest.mark.parametrize(
    ("height", "width", "cells", "kept"),
    [(256, 256, (4, 4), 128), (128, 128, (2, 2), 512), (64, 64, (1, 1), 2048), (144, 256, (3, 4), 171)],
)
def test_resnet_shapes(height: int, width: int, cells: tuple[int, int], kept: int) -> None:
    """DD-PPO appendix C: 256x256 gives 1024x4x4, then 128x4x4; other sizes keep about 2048 numbers."""
    with META:
        encoder = ResNetEncoder(Layout(images={"pixels": (3, height, width)}, vectors={"goal": 3}))
        feature_map = encoder.backbone(encoder.pool(torch.zeros(2, 3, height, width)))
        assert feature_map.shape == (2, 1024, *cells)
        assert encoder.compression(feature_map).shape == (2, kept, *cells)
        obs = {"pixels": torch.zeros(2, 3, height, width, dtype=torch.uint8), "goal": torch.zeros(2, 3)}
        assert encoder(obs).shape == (2, 512 + 32)


def test_resnet50_is_resnet50() -> None:
    """At full width the backbone has the 23,508,032 parameters of ResNet50 without its classifier."""
    with META:
        assert count(ResNet50(3, width=64)) == 23_508_032


def test_resnet_agent_parameters() -> None:
    """The PointGoal agent for depth 256x256 has the parts that appendix C lists, and no others."""
    policy = build_policy("resnet", space(depth=256), choices(4), seed=0)
    with META:
        backbone = count(ResNet50(1))
    compression = 128 * 1024 * 9 + 2 * 128
    visual = 512 * (2048 + 1)
    goal, prev_action = 32 * (3 + 1), 32 * (4 + 1)
    core = lstm(512 + 32 + 32, 512) + lstm(512, 512)
    heads = (4 + 1) * (512 + 1)
    assert count(policy) == backbone + compression + visual + goal + prev_action + core + heads
    assert not any(isinstance(module, nn.BatchNorm2d) for module in policy.modules())


def test_conv_agent_parameters() -> None:
    """Sample Factory's simplified network for 128x72 RGB: 32, 64, 128 filters, FC 512, LSTM 512, and no more."""
    policy = build_policy("conv", space(goal=False, pixels=(3, 72, 128)), choices(5), seed=0)
    convs = 32 * (3 * 64 + 1) + 64 * (32 * 16 + 1) + 128 * (64 * 9 + 1)
    full = 512 * (128 * 3 * 6 + 1)
    assert count(policy) == convs + full + lstm(512, 512) + (5 + 1) * (512 + 1)


def test_conv_reads_vectors_and_depth() -> None:
    """Depth is a further channel, and vectors join after two layers of 128."""
    with META:
        encoder = ConvEncoder(Layout(images={"pixels": (3, 40, 40), "depth": (1, 40, 40)}, vectors={"goal": 3, "b": 2}))
        obs = {
            "pixels": torch.zeros(2, 3, 40, 40, dtype=torch.uint8),
            "depth": torch.zeros(2, 1, 40, 40),
            "goal": torch.zeros(2, 3),
            "b": torch.zeros(2, 2),
        }
        assert encoder(obs).shape == (2, 512 + 128)


@pytest.mark.parametrize("size", [1, 7, 64, 100])
def test_small_scan(size: int) -> None:
    """The scan's 16 columns are the nearest depths from left to right, whatever the image's size; 10 m at most."""
    encoder = SmallEncoder(Layout(images={"depth": (1, size, size)}, vectors={}))
    depth = torch.full((1, 1, size, size), 50.0)
    depth[..., size // 2, -1] = 2.0
    scan = encoder._scan(depth)
    assert scan.shape == (1, 16)
    assert scan[0, -1] == 2.0
    assert scan[0, 0] == (2.0 if size == 1 else 10.0)
    assert encoder({"depth": depth}).shape == (1, encoder.num_features)
