"""Learning settings: what every system shares, so that only scheduling and communication differ."""

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


CORRECTIONS = ("none",)
