"""Makes the rollout of one rank from the choice of what fills a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlbench.systems.choices.rollout import Fixed, Trajectories, Variable, stream_limit
from rlbench.systems.engine.rollouts.rollout import FixedRollout, Rollout, VariableRollout
from rlbench.systems.engine.rollouts.trajectories import QuotaRollout, StreamRollout

if TYPE_CHECKING:
    from rlbench.systems.choices.rollout import RolloutChoice


def open_rollout(choice: RolloutChoice, num_envs: int, num_steps: int, *, ahead: int = 0, agents: int = 1) -> Rollout:
    """Makes the rollout of one rank that stops for each batch.

    Args:
        choice: what fills a batch.
        num_envs: N.
        num_steps: T.
        ahead: how many rollouts may be held beside the one that is being filled.
        agents: A, of each environment, where N counts agents.
    """
    match choice:
        case Fixed():
            return FixedRollout(num_envs, num_steps, ahead=ahead, agents=agents)
        case Variable():
            return VariableRollout(num_envs, num_steps * num_envs, ahead=ahead)
        case Trajectories():
            return QuotaRollout(num_envs, num_steps, choice.target(num_envs, num_steps), ahead=ahead)


def open_stream(
    choice: Trajectories, num_envs: int, num_steps: int, *, max_lag: int, updates_per_batch: int
) -> StreamRollout:
    """Makes the rollout of one rank that never stops."""
    batch = choice.target(num_envs, num_steps)
    limit = stream_limit(batch, num_envs, num_steps, max_lag, updates_per_batch)
    return StreamRollout(num_envs, num_steps, batch, limit)
