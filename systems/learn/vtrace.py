"""V-trace (Espeholt et al. 2018, arXiv:1802.01561, IMPALA; Sample Factory section 3.4) over packed sequences.

Letters: L steps of a sequence, M samples of a mini-batch (see `systems.learn.sequences.Packed` for their order).
"""

from __future__ import annotations

import torch
from torch import Tensor


def vtrace(
    log_ratios: Tensor,
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    batch_sizes: Tensor,
    *,
    discount: float,
    rho: float,
    c: float,
) -> tuple[Tensor, Tensor]:
    """Value targets and advantages of sequences that were acted by a policy other than the current one.

    With ratio_t = pi(a_t) / mu(a_t), rho_t = min(rho, ratio_t), c_t = min(c, ratio_t) and
    delta_t = rho_t (r_t + discount V(x_(t+1)) - V(x_t)), equation 1 of Espeholt et al. is
    v_s = V(x_s) + sum over t >= s of discount^(t - s) (c_s ... c_(t-1)) delta_t. Here it is the scan of their remark 1,
    v_s - V(x_s) = delta_s + discount c_s (v_(s+1) - V(x_(s+1))), from the last step of all sequences to the first.

    The advantages are r_s + discount v_(s+1) - V(x_s), those of their section 4.2 without the weight rho_s: PPO's loss
    already multiplies them with the ratio, and its clipping bounds that (Sample Factory 3.4 keeps both V-trace and
    clipping).

    Args:
        log_ratios: float [M], log(pi(a) / mu(a)) of the current and the acting policy.
        rewards: float [M].
        values: float [M], V(x_t) under the current weights.
        next_values: float [M], read at the last step of each sequence: V(x_(t+1)), which is 0 where the episode
            terminated and the value of the final observation where it was truncated. Episodes end with their sequence.
        batch_sizes: int64 [longest L], on the CPU: how many sequences have a first, second, ... step.
        discount: gamma, 0 to 1.
        rho: truncation level of rho_t, above 0.
        c: truncation level of c_t, 0 to rho.

    Returns:
        (targets v_s [M], advantages [M]), without gradients.
    """
    with torch.no_grad():
        ratios = log_ratios.exp()
        sizes: list[int] = batch_sizes.tolist()
        following = _following(values, next_values, sizes)  # [M], V(x_(t+1))
        decays = discount * ratios.clamp(max=c)
        # These begin as delta_s; the scan makes them v_s - V(x_s) in place. A sequence's last step stays as it is.
        corrections = ratios.clamp(max=rho) * (rewards + discount * following - values)
        steps, decay_steps = torch.split(corrections, sizes), torch.split(decays, sizes)
        for step in range(len(sizes) - 2, -1, -1):
            num_on = sizes[step + 1]
            steps[step][:num_on].addcmul_(decay_steps[step][:num_on], steps[step + 1])
        targets = values + corrections
        advantages = rewards + discount * _following(targets, next_values, sizes) - values
        return targets, advantages


def _following(entries: Tensor, ends: Tensor, sizes: list[int]) -> Tensor:
    """The entry of the next step in each sample's sequence, [M]; that of `ends` where the sample is the last."""
    following = ends.clone()
    steps, next_steps = torch.split(following, sizes), torch.split(entries, sizes)
    for step in range(len(sizes) - 1):
        steps[step][: sizes[step + 1]] = next_steps[step + 1]
    return following
