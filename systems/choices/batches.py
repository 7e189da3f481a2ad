"""Which choices can step environments in batches, pools, or with several agents each, and with how many of them."""

from __future__ import annotations

from rlbench.systems.choices.collect import ActorSide, Collector, DoubleBuffered, Dynamic
from rlbench.systems.choices.overlap import Continuous, OverlapChoice
from rlbench.systems.choices.rollout import Fixed, RolloutChoice, Trajectories, Variable

ALONE = "use vector=none (of emulated environments, envs_per_batch=1)"


def why_not_in_batches(
    collect: Collector, rollout: RolloutChoice, overlap: OverlapChoice, num_envs: int, size: int, num_steps: int
) -> str | None:
    """None if a system with these choices can step `num_envs` environments `size` at a time; else why not.

    The environments of a batch step together, so whatever is decided must be decided for whole batches. One
    step may do no more than reset its environment, but not the next one too: so T = `num_steps` matters.
    """
    whole = 2 * size if isinstance(collect, DoubleBuffered) else size
    of_worker = collect.num_envs_per_worker if isinstance(collect, DoubleBuffered) else 0
    most = collect.max_batch if isinstance(collect, DoubleBuffered | Dynamic) else 0
    in_turn = ", since double buffering steps two batches in turn" if isinstance(collect, DoubleBuffered) else ""
    is_quota = isinstance(rollout, Trajectories) and not isinstance(overlap, Continuous)
    rules = (
        (isinstance(collect, ActorSide), f"the policy acts in the workers, for single environments: {ALONE}"),
        (is_quota, f"a batch of trajectories has room for single environments: {ALONE}, or overlap=continuous"),
        (
            isinstance(rollout, Fixed) and num_steps == 1,
            f"rollouts of 1 step: must be of at least 2, since one step may only reset: use more, or {ALONE}",
        ),
        (num_envs % whole, f"num_envs={num_envs}: must be a multiple of {whole}{in_turn}"),
        (of_worker % whole, f"collect.num_envs_per_worker={of_worker}: must be a multiple of {whole}{in_turn}"),
        (most % size, f"collect.max_batch={most}: must be a multiple of {size}, or 0 for all"),
    )
    return next((why for breaks, why in rules if breaks), None) or collect.check(num_envs)


def why_not_in_agents(
    collect: Collector, rollout: RolloutChoice, overlap: OverlapChoice, num_envs: int, agents: int
) -> str | None:
    """The same of `num_envs` environments of several agents each, who step together: what counts are agents."""
    in_turn = isinstance(collect, DoubleBuffered)
    whole = 2 * agents if in_turn else agents
    of_worker = collect.num_envs_per_worker if isinstance(collect, DoubleBuffered) else 0
    least, most = (collect.min_batch, collect.max_batch) if isinstance(collect, DoubleBuffered | Dynamic) else (0, 0)
    at_once = num_envs * agents // (2 if in_turn else 1)
    each = f"{agents} agents of an environment"
    is_quota = isinstance(rollout, Trajectories) and not isinstance(overlap, Continuous)
    rules = (
        (isinstance(collect, ActorSide), f"the policy acts in the workers, for one agent and not for the {each}"),
        (is_quota, f"a batch of trajectories has room for single agents, not for the {each}: use overlap=continuous"),
        (
            in_turn and num_envs % 2,
            f"num_envs={num_envs}: must be even, since double buffering steps two environments in turn",
        ),
        (of_worker % whole, f"collect.num_envs_per_worker={of_worker}: counts agents, must be a multiple of {whole}"),
        (
            of_worker and num_envs * agents % of_worker,
            f"collect.num_envs_per_worker={of_worker}: must divide the {num_envs * agents} agents of a rank",
        ),
        (most % agents, f"collect.max_batch={most}: counts agents, must be a multiple of {agents}, or 0 for all"),
        (least > at_once, f"collect.min_batch={least}: must be at most {at_once}, the agents that may wait at once"),
    )
    return next((why for breaks, why in rules if breaks), None)


def why_not_in_pools(
    collect: Collector, rollout: RolloutChoice, overlap: OverlapChoice, num_envs: int, size: int, of_recv: int
) -> str | None:
    """The same of pools of `size` environments, which act by themselves; a pool answers for `of_recv` at a time.

    It never answers for the last few: as long as fewer than `of_recv` have an action, they wait.
    """
    pools = f"pools that answer for {of_recv} of {size} environments at a time"
    remedy = f"or pools that answer for all {size}"
    carries = isinstance(rollout, Variable) or (isinstance(rollout, Trajectories) and isinstance(overlap, Continuous))
    most = num_envs - num_envs // size * (of_recv - 1)
    least = collect.min_batch if isinstance(collect, Dynamic) else 0
    rules = (
        (not 0 < of_recv < size or size % of_recv, f"{pools}: the former must divide the latter"),
        (num_envs % size, f"num_envs={num_envs}: must be a multiple of {size}"),
        (not isinstance(collect, Dynamic), f"{pools} need collect=dynamic, {remedy}"),
        (not carries, f"{pools} need rollout=variable or overlap=continuous, which carry steps over; {remedy}"),
        (least > most, f"collect.min_batch={least}: must be at most {most}, since {pools} keep the others waiting"),
    )
    return next((why for breaks, why in rules if breaks), None) or collect.check(num_envs)
