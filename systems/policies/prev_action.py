"""The previous action as an input of the policy.

Letters: N environments (or samples), K numbers of an action, F features.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlbench.systems.spaces.actions import ActionLayout, Categorical, Numbers, Part


class EmbeddedAction(nn.Embedding):
    """A single choice: one row of features for each alternative, and one for the start of an episode."""

    def __init__(self, actions: ActionLayout, num_features: int) -> None:
        (part,) = actions.parts
        assert isinstance(part, Categorical)
        super().__init__(part.num + 1, num_features)

    def forward(self, prev_actions: Tensor, starts: Tensor) -> Tensor:  # type: ignore[override]  # it knows starts
        """Features [N, F] of `prev_actions` [N, 1], bool `starts` [N]; index 0 is the start token."""
        return super().forward((prev_actions[:, 0] + 1).masked_fill(starts, 0))


class ProjectedAction(nn.Linear):
    """Any other action: its choices as one-hot vectors, its bits and numbers, and whether there is none yet."""

    def __init__(self, actions: ActionLayout, num_features: int) -> None:
        sizes = [(_width(part), isinstance(part, Categorical)) for part in actions.parts]
        super().__init__(1 + sum(size for size, _ in sizes), num_features)
        self._sizes = sizes

    def forward(self, prev_actions: Tensor, starts: Tensor) -> Tensor:  # type: ignore[override]  # it knows starts
        """Features [N, F] of `prev_actions` [N, K], bool `starts` [N]."""
        dtype = self.weight.dtype
        parts, at = [], 0
        for size, is_choice in self._sizes:
            if is_choice:
                parts.append(nn.functional.one_hot(prev_actions[:, at].long(), size).to(dtype))
                at += 1
            else:
                parts.append(prev_actions[:, at : at + size].to(dtype).tanh())
                at += size
        acted = torch.cat(parts, 1).masked_fill(starts.unsqueeze(1), 0.0)
        return super().forward(torch.cat((starts.unsqueeze(1).to(dtype), acted), 1))


def _width(part: Part) -> int:
    return len(part.low) if isinstance(part, Numbers) else part.num


def prev_action_input(actions: ActionLayout, num_features: int) -> nn.Module:
    """The module that makes `num_features` of the previous actions and the starts of episodes."""
    kind = EmbeddedAction if actions.is_discrete else ProjectedAction
    return kind(actions, num_features)
