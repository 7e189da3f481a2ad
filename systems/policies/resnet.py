"""The visual and goal encoders of DD-PPO's PointGoal agent (section 4, 'Agent', and appendix C).

Where the paper is silent (stem, number of GroupNorm groups, form of the compression for other image sizes) this follows
habitat-lab's `PointNavResNetPolicy`, the authors' own code.

Letters: M observations, C channels, H x W pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn

from rlbench.systems.policies.encoders import Encoder
from rlbench.systems.policies.observations import joined_vectors, stacked_images
from rlbench.systems.spaces.layout import Layout


class ResidualBlock(nn.Module):
    """Residual block of ResNet50 (He et al. 2016, figure 5) with GroupNorm in place of BatchNorm."""

    expansion = 4

    def __init__(self, num_in: int, num_planes: int, num_groups: int, stride: int) -> None:
        super().__init__()
        num_out = self.expansion * num_planes
        self.residual = nn.Sequential(
            nn.Conv2d(num_in, num_planes, 1, bias=False),
            nn.GroupNorm(num_groups, num_planes),
            nn.ReLU(inplace=True),
            nn.Conv2d(num_planes, num_planes, 3, stride=stride, padding=1, bias=False),
            nn.GroupNorm(num_groups, num_planes),
            nn.ReLU(inplace=True),
            nn.Conv2d(num_planes, num_out, 1, bias=False),
            nn.GroupNorm(num_groups, num_out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or num_in != num_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(num_in, num_out, 1, stride=stride, bias=False), nn.GroupNorm(num_groups, num_out)
            )

    def forward(self, images: Tensor) -> Tensor:
        """[M, num_in, H, W] to [M, 4 * num_planes, H / stride, W / stride], rounded up."""
        return torch.relu(self.residual(images) + self.shortcut(images))


class ResNet50(nn.Sequential):
    """ResNet50 without its classifier; [M, C, H, W] to [M, 32 * width, H / 32, W / 32], rounded up.

    Args:
        num_channels: C.
        width: planes of the first stage: 64 in He et al., 32 in DD-PPO ('reduced by half').
    """

    def __init__(self, num_channels: int, width: int = 32) -> None:
        num_groups = width // 2
        widths = (width, width, 2 * width, 4 * width, 8 * width)
        stages = []
        for stage, (before, planes) in enumerate(pairwise(widths)):
            num_in = width if stage == 0 else ResidualBlock.expansion * before
            stages.append(ResidualBlock(num_in, planes, num_groups, stride=1 if stage == 0 else 2))
            num_more = (2, 3, 5, 2)[stage]
            stages += [ResidualBlock(ResidualBlock.expansion * planes, planes, num_groups, 1) for _ in range(num_more)]
        super().__init__(
            nn.Conv2d(num_channels, width, 7, stride=2, padding=3, bias=False),
            nn.GroupNorm(num_groups, width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
            *stages,
        )
        self.num_out = ResidualBlock.expansion * widths[-1]


class ResNetEncoder(Encoder):
    """Features of DD-PPO's agent: images to 512, goal (and any other vectors) to 32.

    256x256 images are pooled to 128x128, become 1024x4x4 in the backbone, 128x4x4 in the compression and 512 in a fully
    connected layer. With other sizes the compression keeps about as many numbers, 2048.
    """

    num_compressed = 2048
    num_vector_features = 32

    def __init__(self, layout: Layout, num_visual_features: int = 512) -> None:
        super().__init__()
        self.layout = layout
        channels, height, width = layout.image_shape("resnet")
        num_cells = -(-(height // 2) // 32) * -(-(width // 2) // 32)  # of the backbone's map; it rounds up
        num_kept = max(1, round(self.num_compressed / num_cells))
        self.pool = nn.AvgPool2d(2)
        self.backbone = ResNet50(channels)
        self.compression = nn.Sequential(
            nn.Conv2d(self.backbone.num_out, num_kept, 3, padding=1, bias=False),
            nn.GroupNorm(1, num_kept),
            nn.ReLU(inplace=True),
        )
        self.visual = nn.Sequential(nn.Flatten(), nn.Linear(num_kept * num_cells, num_visual_features), nn.ReLU())
        self.num_features = num_visual_features
        if layout.vectors:
            self.vectors = nn.Linear(layout.vector_size, self.num_vector_features)
            self.num_features += self.num_vector_features

    def forward(self, obs: Mapping[str, Tensor]) -> Tensor:
        """Features [M, F]."""
        dtype = next(self.visual.parameters()).dtype
        images = self.pool(stacked_images(obs, self.layout, dtype))
        features: Tensor = self.visual(self.compression(self.backbone(images)))
        if not self.layout.vectors:
            return features
        return torch.cat((features, self.vectors(joined_vectors(obs, self.layout, dtype))), 1)
