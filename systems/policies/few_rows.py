"""A step of the small policy on few rows, in numpy: what `Policy.act` computes with torch, to rounding.

For a handful of environments the small policy's step is some 100,000 multiplications, and most of its cost is getting
from one operation to the next. Measured in 8 processes on two cores, which sleep 4 ms between steps as ranks do and so
lose their code and data from the caches: 4 rows take `Policy.act` 490 us of CPU, and this 230 us (hot, 150 and 95).

Letters: N environments, F features, U units, A alternatives of an action.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from rlbench.systems.policies.encoders import SmallEncoder
from rlbench.systems.policies.observations import MAX_DEPTH_M
from rlbench.systems.policies.policy import Policy
from rlbench.systems.policies.prev_action import EmbeddedAction
from rlbench.systems.spaces.layout import DEPTH

Floats = NDArray[np.float32]

MOST_ROWS = 16
"""Most rows for which this is used: with more, the products take most of the time, and torch shares them out to
several threads."""
THREADS_VARIABLE = "OPENBLAS_NUM_THREADS"
"""Unless it is 1, numpy's products wait for threads that other ranks keep from running."""


class FewRows:
    """The weights of a policy as numpy arrays: they share its memory, so they are always the newest."""

    def __init__(self, policy: Policy) -> None:
        assert isinstance(policy.encoder, SmallEncoder)
        assert policy.core is not None
        assert isinstance(policy.prev_action, EmbeddedAction)
        self._encoder = policy.encoder
        linear = policy.encoder.hidden[0]
        assert isinstance(linear, nn.Linear)
        self._into_hidden = _of(linear.weight).T, _of(linear.bias)
        self._prev_actions = _of(policy.prev_action.weight)
        of_input, recurrent, one_bias, other_bias = (_of(weights) for weights in policy.core.all_weights[0])
        self._into_gates = of_input.T, recurrent.T, one_bias, other_bias
        self._num_units = policy.core.hidden_size
        self._actor = _of(policy.policy_head.weight).T, _of(policy.policy_head.bias)
        self._critic = _of(policy.value_head.weight)[0], _of(policy.value_head.bias)

    @classmethod
    def of(cls, policy: nn.Module) -> FewRows | None:
        """Makes one for a policy; None if the policy is not covered, or `THREADS_VARIABLE` is not 1.

        Covered is the small policy without pixels, classes and normalisation, with one choice as its action, on the CPU
        in float32, with depth images [1, H, W] whose width 16 columns divide.
        """
        if os.environ.get(THREADS_VARIABLE) != "1" or not isinstance(policy, Policy):
            return None
        is_single = policy.actions.is_discrete and policy.normalizer is None and policy.prev_action is not None
        has_one_layer = policy.core is not None and policy.core.num_layers == 1
        if not (is_single and has_one_layer and _reads_numbers(policy.encoder)):
            return None
        if any(str(parameter.dtype) != "torch.float32" or parameter.is_cuda for parameter in policy.parameters()):
            return None
        return cls(policy)

    def act(
        self,
        obs: Mapping[str, NDArray[Any]],
        prev_actions: NDArray[np.int64],
        starts: NDArray[np.bool_],
        state: Floats,
        generator: np.random.Generator,
    ) -> tuple[NDArray[np.int64], Floats, Floats, Floats]:
        """Samples an action for each of N environments.

        Arguments and results are those of `Policy.act`, as arrays; `state` is zeroed in place where an episode begins.
        """
        hidden, state = self._step(obs, prev_actions, starts, state)
        weights, bias = self._actor
        log_probs = hidden @ weights  # [N, A]
        log_probs += bias
        log_probs -= log_probs.max(1, keepdims=True)
        reached = np.exp(log_probs).cumsum(1)
        drawn = generator.random(len(reached)) * reached[:, -1]
        actions = np.minimum(
            (reached <= drawn[:, None]).sum(1), reached.shape[1] - 1
        )  # a draw may be rounded up to the end
        log_probs -= np.log(reached[:, -1:])
        value_weights, value_bias = self._critic
        chosen = log_probs[np.arange(len(actions)), actions]
        return actions[:, None], chosen, hidden @ value_weights + value_bias, state

    def _step(
        self, obs: Mapping[str, NDArray[Any]], prev_actions: NDArray[np.int64], starts: NDArray[np.bool_], state: Floats
    ) -> tuple[Floats, Floats]:
        """One step of the core: (hidden [N, U], new state [N, 2 U])."""
        num_units = self._num_units
        state[starts] = 0.0
        before = np.where(starts, 0, prev_actions[:, 0] + 1)
        features = np.concatenate((self._features(obs), self._prev_actions[before]), 1)
        of_input, recurrent, one_bias, other_bias = self._into_gates
        gates = features @ of_input  # [N, 4 U]: entry, forget, candidate, exit
        gates += state[:, :num_units] @ recurrent
        gates += one_bias + other_bias
        # The logistic function is (1 + tanh(x / 2)) / 2, which never overflows.
        gates[:, : 2 * num_units] *= 0.5
        gates[:, 3 * num_units :] *= 0.5
        np.tanh(gates, out=gates)
        entry, forget, candidate, exit_ = np.split(gates, 4, axis=1)
        after = np.empty_like(state)
        hidden, cells = after[:, :num_units], after[:, num_units:]
        entry += 1
        np.multiply(entry, candidate, out=candidate)
        forget += 1
        np.multiply(forget, state[:, num_units:], out=cells)
        cells += candidate
        cells *= 0.5
        exit_ += 1
        np.tanh(cells, out=hidden)
        hidden *= exit_
        hidden *= 0.5
        return hidden, after

    def _features(self, obs: Mapping[str, NDArray[Any]]) -> Floats:
        """The features that `SmallEncoder` makes, [N, F]."""
        layout = self._encoder.layout
        parts = []
        if layout.vectors:
            rows = [obs[key].reshape(-1, size) for key, size in layout.vectors.items()]
            vectors = np.concatenate([each.astype(np.float32, copy=False) for each in rows], 1)
            sizes = np.abs(vectors)
            near = np.exp(-sizes)
            parts += [np.copysign(np.log1p(sizes), vectors), near, np.square(np.square(near))]
        if DEPTH in layout.images:
            scan = self._scan(obs[DEPTH]).astype(np.float32, copy=False)
            parts += [scan / np.float32(MAX_DEPTH_M), np.exp(-scan)]
        weights, bias = self._into_hidden
        features: Floats = np.concatenate(parts, 1) @ weights
        features += bias
        return np.tanh(features, out=features)

    def _scan(self, depth: NDArray[Any]) -> NDArray[Any]:
        """The nearest depth in metres of each column group, [N, columns], as in `SmallEncoder`."""
        num_envs, _, height, width = depth.shape
        half = max(1, height // 16)
        rows = depth[:, 0, max(0, height // 2 - half) : height // 2 + half].min(1)  # [N, W]
        columns = self._encoder.num_columns
        nearest: NDArray[Any] = rows.reshape(num_envs, columns, width // columns).min(2)
        return nearest.clip(0, MAX_DEPTH_M)


def _reads_numbers(encoder: nn.Module) -> bool:
    """Whether an encoder is the small one, and reads vectors and depth alone."""
    if not isinstance(encoder, SmallEncoder) or encoder.pictures.images:
        return False
    layout = encoder.layout
    is_even = DEPTH not in layout.images or layout.images[DEPTH][2] % encoder.num_columns == 0
    return is_even and not layout.classes and not layout.readings


def _of(parameter: Tensor) -> Floats:
    weights: Floats = parameter.detach().numpy()
    return weights
