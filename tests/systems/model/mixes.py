"""The mixes of choices, and which of them the model covers."""

from __future__ import annotations

import itertools

from rlbench.systems.choices.mixes import why_impossible
from rlbench.systems.spec import EngineSystem

VARIANTS = EngineSystem.VARIANTS
Mix = tuple[str, ...]
"""The variant of each choice, in the order of `VARIANTS`."""
POSSIBLE: list[Mix] = [
    chosen
    for chosen in itertools.product(*VARIANTS.values())
    if why_impossible(dict(zip(VARIANTS, chosen, strict=True)), VARIANTS) is None
]


def is_covered(mix: Mix) -> bool:
    """Whether the model says that it covers a mix."""
    _, rollout, overlap, preempt, _ = mix
    if (rollout == "trajectories") != (overlap == "continuous"):
        return False
    return overlap != "oneahead" or preempt == "never"


COVERED = [mix for mix in POSSIBLE if is_covered(mix)]


def name_of(mix: Mix) -> str:
    """A mix as the command line has it; settings that make it do what is to be seen, and nothing at random."""
    _, rollout, _, preempt, _ = mix
    settings = [f"{choice}={variant}" for choice, variant in zip(VARIANTS, mix, strict=True)]
    if preempt == "threshold":
        settings.append("preempt.p=0.3")
    if preempt == "optimal" and rollout == "variable":
        settings.append("preempt.fill_stale=true")
    if rollout == "fixed" and preempt != "never":
        settings.append("learn.num_minibatches=1")
    return ":".join(("sync", *settings))
