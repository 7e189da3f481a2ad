"""Policies: an encoder, an LSTM (`nature` has none), a policy head and a value head.

While collecting, `act` takes one step of each of N environments; the recurrent state goes in and out as one tensor
[N, D], a column of the rollout's table. While learning, `evaluate` takes whole packed sequences
(`systems.learn.sequences`). An episode's first step is the one whose previous action is -1. There `act` starts from a
zero state, and sequences are cut and start from zero states, so that both compute the same.

Letters: N environments, M samples of a mini-batch, K its sequences, A actions, F features, D state size, E layers of
the LSTM, U its units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import gymnasium
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from harness.contract.settings import POLICIES
from systems.learn.encoders import NATURE, ConvEncoder, Encoder, SmallEncoder
from systems.learn.lstm import lstm_layer, lstm_step
from systems.learn.observations import Layout
from systems.learn.resnet import ResNetEncoder

KINDS = POLICIES


class Policy(nn.Module):
    """Chooses actions and estimates values; made by `build_policy`."""

    def __init__(
        self, encoder: Encoder, *, num_actions: int, num_action_features: int, num_units: int, num_layers: int
    ) -> None:
        super().__init__()
        self.num_actions = num_actions
        self.encoder = encoder
        self.prev_action = nn.Embedding(num_actions + 1, num_action_features) if num_action_features else None
        num_features = encoder.num_features + num_action_features
        self.core = nn.LSTM(num_features, num_units, num_layers) if num_layers else None
        num_units = num_units if num_layers else num_features
        self.policy_head = nn.Linear(num_units, num_actions)
        self.value_head = nn.Linear(num_units, 1)

    @property
    def state_size(self) -> int:
        """D = 2 * E * U: hidden values and cells of all layers; 0 without any."""
        return 0 if self.core is None else 2 * self.core.num_layers * self.core.hidden_size

    def initial_state(self, num_envs: int) -> Tensor:
        """Zeros [N, D] on the policy's device."""
        return self.value_head.weight.new_zeros(num_envs, self.state_size)

    @torch.inference_mode()
    def act(
        self, obs: Mapping[str, Tensor], prev_actions: Tensor, state: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Samples an action for each of N environments.

        Args:
            obs: [N, ...] by key.
            prev_actions: int64 [N]; -1 at an episode's first step, which ignores its `state`.
            state: float [N, D], as the step before returned it.
            generator: on the policy's device.

        Returns:
            (actions int64 [N], their log-probabilities [N], values [N], new state [N, D]).
        """
        hidden, state = self._step(obs, prev_actions, state)
        log_probs = torch.log_softmax(self.policy_head(hidden), -1)  # [N, A]
        # Among exponential variables with rates p, variable i is the smallest with probability p_i.
        waits = torch.empty_like(log_probs).exponential_(generator=generator)
        actions = (log_probs - waits.log()).argmax(-1)
        chosen = log_probs.gather(1, actions.unsqueeze(1)).squeeze(1)
        return actions, chosen, self.value_head(hidden).squeeze(1), state

    @torch.inference_mode()
    def value(self, obs: Mapping[str, Tensor], prev_actions: Tensor, state: Tensor) -> Tensor:
        """Values [N] of observations that no action follows: final ones, and the next ones where a rollout is cut.

        The arguments are those that `act` would get for the observations.
        """
        hidden, _ = self._step(obs, prev_actions, state)
        values: Tensor = self.value_head(hidden).squeeze(1)
        return values

    def evaluate(
        self, obs: Mapping[str, Tensor], prev_actions: Tensor, batch_sizes: Tensor, states: Tensor, actions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Runs over K packed sequences of M samples in total, with gradients.

        Args:
            obs: [M, ...] by key, in packed order.
            prev_actions: int64 [M], in packed order.
            batch_sizes: int64, on the CPU: how many sequences have a first, second, ... step.
            states: float [K, D], at the sequences' starts, the longest sequence first.
            actions: int64 [M], in packed order.

        Returns:
            (log-probabilities of the actions [M], entropies [M], values [M]), in packed order.
        """
        hidden = self._run_core(self._features(obs, prev_actions), batch_sizes, states)  # [M, U]
        log_probs = torch.log_softmax(self.policy_head(hidden), -1)  # [M, A]
        entropies = -(log_probs.exp() * log_probs).sum(-1)
        chosen = log_probs.gather(1, actions.unsqueeze(1)).squeeze(1)
        return chosen, entropies, self.value_head(hidden).squeeze(1)

    def _run_core(self, features: Tensor, batch_sizes: Tensor, states: Tensor) -> Tensor:
        """Runs packed sequences through the core; returns its outputs [M, U], in packed order."""
        if self.core is None:
            return features
        hidden, cells = self._unfold(states)
        if features.is_cuda:
            output, _ = self.core(PackedSequence(features, batch_sizes), (hidden, cells))
            return output.data  # type: ignore[no-any-return]  # torch leaves modules' results untyped
        for weights, *state in zip(self.core.all_weights, hidden, cells, strict=True):
            features = lstm_layer(features, batch_sizes.tolist(), (state[0], state[1]), weights)
        return features

    def _step(self, obs: Mapping[str, Tensor], prev_actions: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One step of the core: (hidden [N, U], new state [N, D])."""
        features = self._features(obs, prev_actions)  # [N, F]
        if self.core is None:
            return features, state
        state = state.masked_fill((prev_actions < 0).unsqueeze(1), 0.0)
        hidden, cells = self._unfold(state)
        if features.is_cuda:
            output, (hidden, cells) = self.core(features.unsqueeze(0), (hidden, cells))
            return output[0], torch.stack((hidden, cells)).permute(2, 0, 1, 3).reshape(state.shape)
        layers = []
        for weights, *before in zip(self.core.all_weights, hidden, cells, strict=True):
            layers.append(lstm_step(features, (before[0], before[1]), weights))
            features = layers[-1][0]
        after = torch.cat([layer[0] for layer in layers] + [layer[1] for layer in layers], 1)
        return features, after

    def _features(self, obs: Mapping[str, Tensor], prev_actions: Tensor) -> Tensor:
        """The core's inputs, [N or M, F]; index 0 of the embedding is the start token."""
        features: Tensor = self.encoder(obs)
        if self.prev_action is None:
            return features
        return torch.cat((features, self.prev_action(prev_actions + 1)), 1)

    def _unfold(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """[N, D] to hidden values and cells, each [E, N, U]."""
        assert self.core is not None
        shape = (state.shape[0], 2, self.core.num_layers, self.core.hidden_size)
        hidden, cells = state.view(shape).permute(1, 2, 0, 3).contiguous()
        return hidden, cells


def build_policy(kind: str, observation_space: gymnasium.spaces.Dict, num_actions: int, seed: int) -> Policy:
    """Makes a policy on the CPU with the weights that belong to the seed; leaves torch's own random state alone.

    Args:
        kind: `small` trains on a CPU in minutes; `conv` is Sample Factory's simplified network (figure A.1: LSTM 512,
            no previous action); `nature` has no recurrent core (Mnih et al. 2015); `resnet` is DD-PPO's PointGoal
            agent (appendix C: previous action to 32, two LSTM layers of 512).
        observation_space: `pixels` [C, H, W], `depth` [1, H, W], vectors [K].
        num_actions: A.
        seed: the same seed gives the same weights.

    Raises:
        ValueError: the kind is unknown, or does not read these observations.
    """
    layout = Layout.of(observation_space)
    # torch's own initialisation draws from its global generator. (Modules without storage, on the meta device, would
    # avoid that, but import torch._dynamo: more than a second in every rank.)
    with torch.random.fork_rng(devices=()):
        match kind:
            case "small":
                policy = Policy(
                    SmallEncoder(layout), num_actions=num_actions, num_action_features=16, num_units=128, num_layers=1
                )
            case "conv":
                policy = Policy(
                    ConvEncoder(layout), num_actions=num_actions, num_action_features=0, num_units=512, num_layers=1
                )
            case "nature":
                encoder = ConvEncoder(layout, "nature", NATURE)
                policy = Policy(encoder, num_actions=num_actions, num_action_features=0, num_units=0, num_layers=0)
            case "resnet":
                policy = Policy(
                    ResNetEncoder(layout), num_actions=num_actions, num_action_features=32, num_units=512, num_layers=2
                )
            case _:
                raise ValueError(f"policy {kind}: unknown; must be one of: {', '.join(KINDS)}")
    _initialize(policy, torch.Generator().manual_seed(seed))
    return policy


@torch.no_grad()
def _initialize(policy: Policy, generator: torch.Generator) -> None:
    """Draws all weights: orthogonal, He-normal before a GroupNorm; the first actions are nearly uniform."""
    gains: dict[nn.Module, float] = {policy.policy_head: 0.01, policy.value_head: 1.0}
    for module in policy.modules():
        match module:
            case nn.Linear() | nn.Conv2d() if module.bias is not None:
                nn.init.orthogonal_(module.weight, gains.get(module, math.sqrt(2)), generator=generator)
                nn.init.zeros_(module.bias)
            case nn.Conv2d():
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=generator)
            case nn.LSTM():
                for name, parameter in module.named_parameters():
                    if name.startswith("bias"):
                        nn.init.zeros_(parameter)
                        continue
                    for gate in parameter.chunk(4):
                        nn.init.orthogonal_(gate, generator=generator)
            case nn.Embedding():
                nn.init.normal_(module.weight, generator=generator)
            case nn.GroupNorm():
                nn.init.ones_(module.weight)
                nn.init.zeros_(module.bias)
            case _:
                assert not list(module.parameters(recurse=False)), f"no rule to initialise {module}"
