"""Policies: an encoder, an LSTM (`nature` and `auto` have none), a head for actions, and a value head.

While collecting, `act` takes one step of each of N environments; the recurrent state goes in and out as one tensor
[N, D], a column of the rollout's table. While learning, `evaluate` takes whole packed sequences
(`systems.learn.sequences`). At an episode's first step `act` starts from a zero state and reads no previous action, and
sequences are cut and start from zero states, so that both compute the same.

Letters: N environments, M samples of a mini-batch, Q its sequences, K numbers of an action (`systems.spaces.actions`),
F features, D state size, E layers of the LSTM, U its units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from rlbench.harness.contract.scenario import Scenario
from rlbench.harness.contract.settings import POLICIES
from rlbench.systems.policies.auto import AutoEncoder
from rlbench.systems.policies.distributions import ActionDistribution, ActionHead
from rlbench.systems.policies.encoders import NATURE, ConvEncoder, Encoder, SmallEncoder
from rlbench.systems.policies.lstm import lstm_layer, lstm_step
from rlbench.systems.policies.normalizing import Normalizer
from rlbench.systems.policies.prev_action import prev_action_input
from rlbench.systems.policies.resnet import ResNetEncoder
from rlbench.systems.spaces.actions import ActionLayout, Std, layout_of
from rlbench.systems.spaces.layout import Layout

KINDS = POLICIES


class Policy(nn.Module):
    """Chooses actions and estimates values; made by `build_policy`."""

    def __init__(
        self,
        encoder: Encoder,
        actions: ActionLayout,
        *,
        num_action_features: int,
        num_units: int,
        num_layers: int,
        std: Std = "shared",
        normalizes: Mapping[str, int] | None = None,
    ) -> None:
        """Makes the modules; `normalizes` has the size of each leaf with running moments, by its key."""
        super().__init__()
        self.actions = actions
        self._normalizes = dict(normalizes or {})
        self.normalizer = Normalizer(sum(self._normalizes.values())) if self._normalizes else None
        self.encoder = encoder
        self.prev_action = prev_action_input(actions, num_action_features) if num_action_features else None
        num_features = encoder.num_features + num_action_features
        self.core = nn.LSTM(num_features, num_units, num_layers) if num_layers else None
        # Towers of their own for the two heads, where the encoder has them, end in the heads.
        of_value = 0 if num_layers else encoder.num_value_features
        num_units = num_units if num_layers else num_features - of_value
        self.policy_head = ActionHead(actions, num_units, std)
        self.value_head = nn.Linear(of_value or num_units, 1)

    @property
    def state_size(self) -> int:
        """D = 2 * E * U: hidden values and cells of all layers; 0 without any."""
        return 0 if self.core is None else 2 * self.core.num_layers * self.core.hidden_size

    def initial_state(self, num_envs: int) -> Tensor:
        """Zeros [N, D] on the policy's device."""
        return self.value_head.weight.new_zeros(num_envs, self.state_size)

    @torch.inference_mode()
    def act(
        self, obs: Mapping[str, Tensor], prev_actions: Tensor, starts: Tensor, state: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Samples an action for each of N environments.

        Args:
            obs: [N, ...] by key of a leaf of the observation space.
            prev_actions: [N, K]; not read at an episode's first step.
            starts: bool [N], whether it is an episode's first step, which ignores its `state`, too.
            state: float [N, D], as the step before returned it.
            generator: on the policy's device.

        Returns:
            (actions [N, K], their log-probabilities [N], values [N], new state [N, D]).
        """
        hidden, state = self._step(obs, prev_actions, starts, state)
        distribution, values = self._heads(hidden)
        actions, log_probs = distribution.sample(generator)
        return actions, log_probs, values, state

    @torch.inference_mode()
    def value(self, obs: Mapping[str, Tensor], prev_actions: Tensor, starts: Tensor, state: Tensor) -> Tensor:
        """Values [N] of observations that no action follows: final ones, and the next ones where a rollout is cut.

        The arguments are those that `act` would get for the observations.
        """
        hidden, _ = self._step(obs, prev_actions, starts, state)
        return self._heads(hidden)[1]

    def evaluate(
        self,
        obs: Mapping[str, Tensor],
        prev_actions: Tensor,
        starts: Tensor,
        batch_sizes: Tensor,
        states: Tensor,
        actions: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Runs over Q packed sequences of M samples in total, with gradients.

        Args:
            obs: [M, ...] by key, in packed order.
            prev_actions: [M, K], in packed order.
            starts: bool [M], in packed order.
            batch_sizes: int64, on the CPU: how many sequences have a first, second, ... step.
            states: float [Q, D], at the sequences' starts, the longest sequence first.
            actions: [M, K], in packed order.

        Returns:
            (log-probabilities of the actions [M], entropies [M], values [M]), in packed order.
        """
        hidden = self._run_core(self._features(obs, prev_actions, starts), batch_sizes, states)  # [M, U]
        distribution, values = self._heads(hidden)
        entropies = distribution.entropy()
        return distribution.log_prob(actions), entropies, values

    def _heads(self, hidden: Tensor) -> tuple[ActionDistribution, Tensor]:
        """The distributions over actions and the values [N] that belong to hidden values [N, U]."""
        for_policy, for_value = (hidden, hidden) if self.core is not None else self.encoder.for_heads(hidden)
        distribution: ActionDistribution = self.policy_head(for_policy)
        return distribution, self.value_head(for_value).squeeze(1)

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

    def _step(
        self, obs: Mapping[str, Tensor], prev_actions: Tensor, starts: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """One step of the core: (hidden [N, U], new state [N, D])."""
        features = self._features(obs, prev_actions, starts)  # [N, F]
        if self.core is None:
            return features, state
        state = state.masked_fill(starts.unsqueeze(1), 0.0)
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

    def _features(self, obs: Mapping[str, Tensor], prev_actions: Tensor, starts: Tensor) -> Tensor:
        """The core's inputs, [N or M, F]."""
        features: Tensor = self.encoder(obs if self.normalizer is None else self._normalized(obs, self.normalizer))
        if self.prev_action is None:
            return features
        return torch.cat((features, self.prev_action(prev_actions, starts)), 1)

    def observe(self, obs: Mapping[str, Tensor]) -> None:
        """Counts observations [M, ...] for the running moments, where there are any; each is given once."""
        if self.normalizer is not None:
            self.normalizer.observe(self._vectors_of(obs))

    def _vectors_of(self, obs: Mapping[str, Tensor]) -> Tensor:
        """The vectors that are normalised, side by side."""
        flat = [obs[key].flatten(1) for key in self._normalizes]
        return torch.cat([each.byte() if each.dtype == torch.bool else each for each in flat], 1)

    def _normalized(self, obs: Mapping[str, Tensor], normalizer: Normalizer) -> dict[str, Tensor]:
        parts = normalizer(self._vectors_of(obs)).split(list(self._normalizes.values()), 1)
        return {**obs, **dict(zip(self._normalizes, parts, strict=True))}

    def _unfold(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """[N, D] to hidden values and cells, each [E, N, U]."""
        assert self.core is not None
        shape = (state.shape[0], 2, self.core.num_layers, self.core.hidden_size)
        hidden, cells = state.view(shape).permute(1, 2, 0, 3).contiguous()
        return hidden, cells


def policy_of(scenario: Scenario, seed: int) -> Policy:
    """The policy of a scenario, on the CPU, with the weights that belong to the seed; see `build_policy`."""
    return build_policy(
        scenario.policy,
        scenario.observation_space,
        layout_of(scenario),
        seed,
        std=getattr(scenario, "action_std", "shared"),
        image_order=getattr(scenario, "image_order", "auto"),
        normalizes=getattr(scenario, "normalize_observations", False),
    )


def build_policy(
    kind: str,
    observation_space: gymnasium.Space[Any],
    actions: ActionLayout,
    seed: int,
    *,
    std: Std = "shared",
    image_order: str = "auto",
    normalizes: bool = False,
) -> Policy:
    """Makes a policy on the CPU with the weights that belong to the seed; leaves torch's own random state alone.

    Args:
        kind: `auto` is made for the spaces (`systems.policies.auto`); `small` trains on a CPU in minutes; `conv` is
            Sample Factory's simplified network (figure A.1: LSTM 512, no previous action); `nature` has no recurrent
            core (Mnih et al. 2015); `resnet` is DD-PPO's PointGoal agent (appendix C: previous action to 32, two LSTM
            layers of 512).
        observation_space: of the environments.
        actions: what an action's row holds.
        seed: the same seed gives the same weights.
        std: whether the scale of continuous actions is `shared` by all states, or `learned` for each.
        image_order: `hwc` or `chw`, where the shapes of images do not tell.
        normalizes: whether vectors are normalised with running moments.

    Raises:
        ValueError: the kind is unknown, or does not read these observations.
    """
    layout = Layout.of(observation_space, image_order)
    # torch's own initialisation draws from its global generator. (Modules without storage, on the meta device, would
    # avoid that, but import torch._dynamo: more than a second in every rank.)
    with torch.random.fork_rng(devices=()):
        encoder, num_action_features, num_units, num_layers = _parts(kind, layout)
        policy = Policy(
            encoder,
            actions,
            num_action_features=num_action_features,
            num_units=num_units,
            num_layers=num_layers,
            std=std,
            normalizes=layout.numbers if normalizes else None,
        )
    _initialize(policy, torch.Generator().manual_seed(seed))
    return policy


def _parts(kind: str, layout: Layout) -> tuple[Encoder, int, int, int]:
    """(Encoder, features of the previous action, units of the LSTM, its layers)."""
    match kind:
        case "auto":
            return AutoEncoder(layout), 0, 0, 0
        case "small":
            return SmallEncoder(layout), 16, 128, 1
        case "conv":
            return ConvEncoder(layout), 0, 512, 1
        case "nature":
            return ConvEncoder(layout, "nature", NATURE), 0, 0, 0
        case "resnet":
            return ResNetEncoder(layout), 32, 512, 2
    raise ValueError(f"policy {kind}: unknown; must be one of: {', '.join(KINDS)}")


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
                own = module.parameters(recurse=False)
                assert not any(parameter.requires_grad for parameter in own), f"no rule to initialise {module}"
