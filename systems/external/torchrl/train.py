"""Trains PPO made of torchrl's parts, in its own virtual environment: `python train.py SETTINGS` (as JSON).

The processes of a MultiSyncCollector step environments and choose actions, each with a copy of the policy, until the
fraction `preemptive_threshold` of them have their share of the rollout; the others then hand over what they have. This
process learns from all of it, and sends the new weights. Letters: T steps of a rollout.
"""

import functools
import json
import math
import sys
from typing import Any

import torch
from gymnasium.spaces import Box
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torchrl.collectors import MultiSyncCollector
from torchrl.envs import GymWrapper, SerialEnv
from torchrl.modules import ActorValueOperator, IndependentNormal, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import rlbench_client
from rlbench_client.plain import plain

CONVOLUTIONS = ((8, 4, 32), (4, 2, 64), (3, 1, 64))
"""Kernel, stride and channels: the network of Mnih et al. 2015."""
NUM_FEATURES = 512
NUM_UNITS = 64
"""Of each of two layers for vectors."""


def make_plain(image_order: str) -> Any:
    """An environment of the run that shows an image or a vector, and clips numbers of actions."""
    return plain(rlbench_client.make_env(), image_order=image_order, actions="row")


def make_env(image_order: str) -> Any:
    """An environment of the run, in the process that steps it."""
    return GymWrapper(make_plain(image_order), categorical_action_encoding=True)


class PixelEncoder(nn.Module):
    """Features [..., 512] of pixels, uint8 [..., C, H, W]."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = shape[0]
        for kernel, stride, more in CONVOLUTIONS:
            layers += [nn.Conv2d(channels, more, kernel, stride), nn.ReLU()]
            channels = more
        convolutions = nn.Sequential(*layers, nn.Flatten())
        num_outputs = convolutions(torch.zeros(1, *shape)).shape[1]
        self.layers = nn.Sequential(convolutions, nn.Linear(num_outputs, NUM_FEATURES), nn.ReLU())

    def forward(self, pixels: Tensor) -> Tensor:
        """Features of any number of images."""
        images = pixels.flatten(0, -4) if pixels.ndim > 3 else pixels.unsqueeze(0)
        features: Tensor = self.layers(images.float() / 255)
        return features.view(*pixels.shape[:-3], NUM_FEATURES)


class Gaussian(nn.Module):
    """Mean and deviation [..., K] of features; the deviation is a parameter."""

    def __init__(self, num_features: int, num_numbers: int) -> None:
        super().__init__()
        self.mean = nn.Linear(num_features, num_numbers)
        self.log_std = nn.Parameter(torch.zeros(num_numbers))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation."""
        mean = self.mean(features)
        return mean, self.log_std.exp().expand_as(mean)


def make_encoder(shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """Encoder of an image [C, H, W] or a vector [K], and the number of its features."""
    if len(shape) == 3:
        return PixelEncoder((shape[0], shape[1], shape[2])), NUM_FEATURES
    layers = [nn.Linear(shape[0], NUM_UNITS), nn.Tanh(), nn.Linear(NUM_UNITS, NUM_UNITS), nn.Tanh()]
    return nn.Sequential(*layers), NUM_UNITS


def make_head(actions: Any, num_features: int) -> tuple[nn.Module, nn.Linear, list[str], type]:
    """Policy head, its last layer, the names of its outputs, and the distribution that has these arguments."""
    if isinstance(actions, Box):
        gaussian = Gaussian(num_features, actions.shape[0])
        return gaussian, gaussian.mean, ["loc", "scale"], IndependentNormal
    head = nn.Linear(num_features, int(actions.n))
    return head, head, ["logits"], torch.distributions.Categorical


def make_model(shape: tuple[int, ...], actions: Any, device: str) -> Any:
    """Policy and value with a shared encoder, initialised as ours: orthogonal, the first actions nearly uniform."""
    encoder, num_features = make_encoder(shape)
    policy, last, names, distribution = make_head(actions, num_features)
    value = nn.Linear(num_features, 1)
    gains: dict[nn.Module, float] = {last: 0.01, value: 1.0}
    for module in (*encoder.modules(), last, value):
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            assert module.bias is not None
            nn.init.orthogonal_(module.weight, gains.get(module, math.sqrt(2)))
            nn.init.zeros_(module.bias)
    return ActorValueOperator(
        common_operator=TensorDictModule(encoder, in_keys=["observation"], out_keys=["features"]),
        policy_operator=ProbabilisticActor(
            TensorDictModule(policy, in_keys=["features"], out_keys=names),
            in_keys=names,
            distribution_class=distribution,
            return_log_prob=True,
        ),
        value_operator=ValueOperator(value, in_keys=["features"]),
    ).to(device)


def rows_of(batch: Any) -> list[Any]:
    """Cuts a batch [workers, environments, T] to what each worker has: [environments, T or less], none if empty."""
    mask = batch.get(("collector", "mask"), None)
    lengths = [batch.shape[-1]] * len(batch) if mask is None else mask[:, 0].sum(-1).tolist()
    return [rows[:, :length] for rows, length in zip(batch, lengths, strict=True) if length]


def learn_from(batch: Any, told: dict[str, Any], loss: Any, gae: Any, optimizer: torch.optim.Optimizer) -> None:
    """Runs one learning phase: mini-batches are of whole environments, in random order in each epoch."""
    learn = told["learn"]
    with torch.no_grad():
        rows = [row for chunk in rows_of(batch) for row in gae(chunk)]
    for epoch in range(learn["epochs"]):
        for chosen in torch.randperm(len(rows)).tensor_split(learn["num_minibatches"]):
            samples = torch.cat([rows[row] for row in chosen.tolist()])
            losses = loss(samples.to(told["device"]))
            total = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
            optimizer.zero_grad()
            total.backward()
            nn.utils.clip_grad_norm_(loss.parameters(), learn["max_grad_norm"])
            optimizer.step()
            if epoch:
                rlbench_client.reused(len(samples))
            else:
                rlbench_client.learned(len(samples), lag=0)
    rlbench_client.discarded(0)
    rlbench_client.iteration()


def main() -> None:
    """Trains until it is ended."""
    told = json.loads(sys.argv[1])
    learn, num_workers = told["learn"], told["num_workers"]
    torch.manual_seed(told["seed"])
    looked_at = make_plain(told["image_order"])
    model = make_model(looked_at.observation_space.shape, looked_at.action_space, told["device"])
    policy, value = model.get_policy_operator(), model.get_value_operator()
    loss = ClipPPOLoss(
        actor_network=policy,
        critic_network=value,
        clip_epsilon=learn["clip"],
        entropy_coeff=learn["entropy_coef"],
        critic_coeff=0.5 * learn["value_coef"],  # its loss is the squared error, not half of it
        loss_critic_type="l2",
        normalize_advantage=learn["normalize_advantages"] != "none",
    )
    gae = GAE(gamma=learn["discount"], lmbda=learn["gae_lambda"], value_network=value, average_gae=False)
    optimizer = torch.optim.Adam(loss.parameters(), lr=learn["learning_rate"], eps=learn["adam_eps"])
    make = functools.partial(make_env, told["image_order"])
    collector = MultiSyncCollector(
        [functools.partial(SerialEnv, told["num_envs"] // num_workers, make)] * num_workers,
        policy,
        frames_per_batch=told["batch"],
        total_frames=-1,
        policy_device=told["device"],
        env_device="cpu",
        storing_device=told["device"],
        preemptive_threshold=told["preemptive_threshold"],
        cat_results="stack",
    )
    torch.manual_seed(told["seed"] + 1)
    for batch in collector:
        with rlbench_client.span("learn"):
            learn_from(batch, told, loss, gae, optimizer)
            collector.update_policy_weights_()


if __name__ == "__main__":
    main()
