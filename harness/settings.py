"""What every system shares on a scenario, so that only scheduling and communication differ."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnSettings:
    """PPO with GAE and Adam; the defaults are DD-PPO's (section 4, 'Training')."""

    epochs: int = 2
    """Passes over each rollout."""
    num_minibatches: int = 2
    """Mini-batches of one pass; a rollout is split by sequences, so at most the number of environments."""
    learning_rate: float = 2.5e-4
    """Adam's step size."""
    adam_eps: float = 1e-5
    """Adam's epsilon."""
    discount: float = 0.99
    """Gamma, per env step."""
    gae_lambda: float = 0.95
    """Lambda of generalised advantage estimation."""
    clip: float = 0.2
    """PPO's clip range of the probability ratio: [1 - clip, 1 + clip]."""
    value_coef: float = 0.5
    """Weight of the value loss."""
    entropy_coef: float = 0.01
    """Weight of the entropy bonus."""
    max_grad_norm: float = 0.5
    """Gradients are scaled down to this L2 norm."""
    normalize_advantages: bool = False
    """DD-PPO section 4: off, because it leads to instabilities with small batches."""
    correct: str = "none"
    """Off-policy correction of the loss: `none`."""

    def __post_init__(self) -> None:
        """Checks every field once."""
        rules = (
            ("epochs", self.epochs >= 1, "at least 1"),
            ("num_minibatches", self.num_minibatches >= 1, "at least 1"),
            ("learning_rate", self.learning_rate > 0, "above 0"),
            ("adam_eps", self.adam_eps > 0, "above 0"),
            ("discount", 0 <= self.discount <= 1, "from 0 to 1"),
            ("gae_lambda", 0 <= self.gae_lambda <= 1, "from 0 to 1"),
            ("clip", self.clip > 0, "above 0"),
            ("value_coef", self.value_coef >= 0, "at least 0"),
            ("entropy_coef", self.entropy_coef >= 0, "at least 0"),
            ("max_grad_norm", self.max_grad_norm > 0, "above 0"),
            ("correct", self.correct in CORRECTIONS, f"one of: {', '.join(CORRECTIONS)}"),
        )
        for name, holds, rule in rules:
            if not holds:
                raise ValueError(f"learn.{name}={getattr(self, name)}: must be {rule}")


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuCosts:
    """What an emulated GPU takes for a scenario's work; times in seconds."""

    render_s: float = 0.0
    """Per env step, first come first served with inference."""
    infer_fixed_s: float = 0.0
    """Per inference batch."""
    infer_item_s: float = 0.0
    """Per item of an inference batch."""
    prepare_s: float = 0.0
    """Per learning phase, beside its mini-batches: returns, advantages, arranging the batches."""
    learn_item_s: float = 0.0
    """Per sample of a mini-batch."""
    render_while_learning_factor: float = 1.0
    """Rendering and inference take this many times as long while learning runs on the same GPU."""
    learn_while_rendering_factor: float = 1.0
    """Learning takes this many times as long while the GPU renders or infers."""
    synchronize_s: float = 0.0
    """Per iteration, as soon as there is more than one rank."""


TYPICAL_GPU_COSTS = GpuCosts(infer_fixed_s=0.0033, infer_item_s=0.00006, learn_item_s=0.00015)
"""About what `emulated/open-fridge` states for a V100; for scenarios without a profile, which render on the CPU."""

CORRECTIONS = ("none",)
POLICIES = ("small", "conv", "resnet")
"""Networks of `systems/learn`."""
