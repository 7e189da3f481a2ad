"""Settings that all systems share on a scenario, so that they differ only in scheduling and communication."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Literal

from rlbench.harness.contract.network_costs import NetworkCosts

Work = Literal["render", "infer", "prepare", "learn"]
"""Kinds of work on a GPU."""
Message = Literal["synchronize", "all_reduce", "moments", "exchange"]
"""All ranks end an iteration; average gradients; add up moments of advantages; one gets or sends weights of `peer`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnSettings:
    """PPO with GAE; the defaults are DD-PPO's (section 4, 'Training')."""

    epochs: int = 2
    """Passes over each rollout."""
    num_minibatches: int = 2
    """Mini-batches of one pass; at most the number of environments where a rollout is split by environments."""
    optimizer: str = "adam"
    """`adam`, or `sgd` with Nesterov's momentum if `momentum` is above 0."""
    learning_rate: float = 2.5e-4
    """The optimiser's step size, at first."""
    schedule: str = "constant"
    """How the learning rate falls over the budget: `constant`; `linear` or `cosine`, to 0 at its end (VER section 4 has
    `cosine`); `step`, times `step_factor` at each of `step_at`."""
    step_at: tuple[float, ...] = (0.5, 0.75)
    """Parts of the budget after which `step` schedules go down, ascending."""
    step_factor: float = 0.1
    """What is left at each of them."""
    weight_decay: float = 0.0
    """Shrinks weights by this times the learning rate in each step (`adam`: decoupled, as AdamW has it), or adds this
    times the weights to their gradients (`sgd`)."""
    adam_eps: float = 1e-5
    """Adam's epsilon."""
    momentum: float = 0.9
    """Momentum of `sgd`; 0 is plain gradient descent."""
    discount: float = 0.99
    """Gamma, per env step."""
    gae_lambda: float = 0.95
    """Lambda of generalised advantage estimation."""
    clip: float = 0.2
    """PPO's clip range of the probability ratio is [1 - clip, 1 + clip]; `clip_low` may replace the lower end."""
    clip_low: float = 0.0
    """Lower end of the clip range; 0 stands for 1 - clip. Sample Factory's range is [1/1.1, 1.1] (table A.5)."""
    value_coef: float = 0.5
    """Weight of the value loss."""
    entropy_coef: float = 0.01
    """Weight of the entropy bonus, at first."""
    entropy_schedule: str = "constant"
    """What becomes of it: as in `schedule`, or `learned`, so that the entropy stays near `entropy_target` (VER section
    4)."""
    entropy_target: float = 0.0
    """Nats; VER's target for all of its tasks."""
    max_grad_norm: float = 0.5
    """Gradients with a larger L2 norm are scaled down to this one."""
    normalize_advantages: str = "none"
    """Over which samples of an update advantages get mean 0 and deviation 1: `none`, as in DD-PPO (section 4); `all`,
    the mini-batches of all ranks that average their gradients; `rank`, each rank's own, so the gradient depends on the
    number of ranks. Ranks that do not wait for each other have only their own."""
    normalize_rewards: bool = False
    """Whether rewards are divided by the deviation of the environments' discounted returns over all rollouts so far and
    all ranks that average their gradients, then clipped to +-10 (Stable-Baselines3's `VecNormalize`)."""
    correct: str = "none"
    """Correction of the loss for how the experience was gathered: `none`; `vtrace`, for an older policy (Sample Factory
    section 3.4); `truncated_is`, for environments that have more samples than others (VER section 4, 'Training')."""
    rho: float = 1.0
    """V-trace's truncation level for the weights of temporal differences; also the largest weight in `truncated_is`."""
    c: float = 1.0
    """V-trace's truncation level for the weights that carry temporal differences back in time."""

    @property
    def clip_range(self) -> tuple[float, float]:
        """Both ends of PPO's clip range."""
        return self.clip_low or 1 - self.clip, 1 + self.clip

    @property
    def follows_budget(self) -> bool:
        """Whether anything depends on how much of the budget is spent."""
        return self.schedule != "constant" or self.entropy_schedule not in {"constant", "learned"}

    @property
    def _ascends(self) -> bool:
        ends = (0.0, *self.step_at, 1.0)
        return all(before < after for before, after in itertools.pairwise(ends))

    def __post_init__(self) -> None:
        """Checks every field once."""
        rules = (
            ("epochs", self.epochs >= 1, "at least 1"),
            ("num_minibatches", self.num_minibatches >= 1, "at least 1"),
            ("optimizer", self.optimizer in OPTIMIZERS, f"one of: {', '.join(OPTIMIZERS)}"),
            ("learning_rate", self.learning_rate > 0, "above 0"),
            ("schedule", self.schedule in SCHEDULES, f"one of: {', '.join(SCHEDULES)}"),
            ("step_at", self._ascends, "ascending numbers above 0 and below 1"),
            ("step_factor", 0 < self.step_factor <= 1, "above 0 and at most 1"),
            ("weight_decay", 0 <= self.weight_decay < 1, "at least 0 and below 1"),
            ("adam_eps", self.adam_eps > 0, "above 0"),
            ("momentum", 0 <= self.momentum < 1, "at least 0 and below 1"),
            ("discount", 0 <= self.discount <= 1, "from 0 to 1"),
            ("gae_lambda", 0 <= self.gae_lambda <= 1, "from 0 to 1"),
            ("clip", self.clip > 0, "above 0"),
            ("clip_low", 0 <= self.clip_low < 1, "at least 0 and below 1; 0 is for 1 - clip"),
            ("value_coef", self.value_coef >= 0, "at least 0"),
            ("entropy_coef", self.entropy_coef >= 0, "at least 0"),
            ("entropy_schedule", self.entropy_schedule in ENTROPIES, f"one of: {', '.join(ENTROPIES)}"),
            ("entropy_coef", self.entropy_schedule != "learned" or self.entropy_coef > 0, "above 0 to be learned"),
            ("max_grad_norm", self.max_grad_norm > 0, "above 0"),
            ("normalize_advantages", self.normalize_advantages in NORMALIZED, f"one of: {', '.join(NORMALIZED)}"),
            ("correct", self.correct in CORRECTIONS, f"one of: {', '.join(CORRECTIONS)}"),
            ("rho", self.rho > 0, "above 0"),
            ("c", self.c >= 0, "at least 0"),
            ("c", self.correct != "vtrace" or self.c <= self.rho, f"at most learn.rho={self.rho} with correct=vtrace"),
        )
        for name, holds, rule in rules:
            if not holds:
                raise ValueError(f"learn.{name}={getattr(self, name)}: must be {rule}")


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuCosts:
    """Times of a scenario's work on an emulated GPU, in seconds."""

    render_s: float = 0.0
    """Per env step; served first come, first served together with inference."""
    infer_fixed_s: float = 0.0
    """Per inference batch."""
    infer_item_s: float = 0.0
    """Per item of an inference batch."""
    prepare_s: float = 0.0
    """Per learning phase, in addition to its mini-batches: returns, advantages, arranging the batches."""
    learn_fixed_s: float = 0.0
    """Per mini-batch."""
    learn_item_s: float = 0.0
    """Per sample of a mini-batch."""
    render_while_learning_factor: float = 1.0
    """Rendering and inference take this many times as long while the GPU learns."""
    learn_while_rendering_factor: float = 1.0
    """Learning takes this many times as long while the GPU renders or infers."""
    actor_infer_s: float = 0.0
    """Per inference of one item on a CPU core, if actors hold the policy."""
    cores: int = 0
    """CPU cores for each GPU, on which environments simulate; 0 means one for each environment."""
    learn_cores: int = 0
    """How many of them learning holds, because the rank has no GPU; inference then holds one. 0: the rank has a GPU."""
    schedule_s: float = 0.0
    """Per env step, of the rank's process: to choose who acts, send the action and file the reply. Only models take it;
    an emulated rank really does it."""
    answer_s: float = 0.0
    """Per env step, of the process that steps: to take the action and write what follows. Only models take it, too."""
    network: NetworkCosts = field(default_factory=NetworkCosts)
    """Times of messages between ranks."""

    def shared_cores(self, num_envs: int) -> int:
        """Cores for which a rank's environments and its own work may have to wait; 0 where there is one for each."""
        return self.cores if 0 < self.cores < num_envs + self.learn_cores else 0


TYPICAL_GPU_COSTS = GpuCosts(infer_fixed_s=0.0033, infer_item_s=0.00006, learn_item_s=0.00015)
"""Roughly the times of `emulated/open-fridge` on a V100; for scenarios without a profile, which render on the CPU."""

SCHEDULES = ("constant", "linear", "cosine", "step")
ENTROPIES = (*SCHEDULES, "learned")
NORMALIZED = ("none", "rank", "all")
CORRECTIONS = ("none", "vtrace", "truncated_is")
OPTIMIZERS = ("adam", "sgd")
POLICIES = ("auto", "small", "conv", "nature", "resnet")
"""Networks of `systems/policies`."""
WITHOUT_MEMORY = ("auto", "nature")
"""Those without a recurrent core."""


def learns_from_samples(policy: str, learn: LearnSettings) -> bool:
    """Whether mini-batches are of single samples in random order: nothing asks for whole sequences."""
    return policy in WITHOUT_MEMORY and learn.correct != "vtrace"
