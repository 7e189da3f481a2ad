"""Which choices do not go together, why, and the nearest mixes that do. It works on names of variants only."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

NUM_NEAREST = 3
"""Most mixes that a message names, all equally near."""


class Rule(NamedTuple):
    """Variants of two choices that no system can have together."""

    first: tuple[str, frozenset[str]]
    second: tuple[str, frozenset[str]]
    why: str

    def forbids(self, mix: Mapping[str, str]) -> bool:
        """Whether the mix has a variant of each."""
        return all(mix[choice] in variants for choice, variants in (self.first, self.second))


PREEMPTS = ("preempt", frozenset({"threshold", "optimal"}))
RULES = (
    Rule(
        ("overlap", frozenset({"continuous"})),
        PREEMPTS,
        "ranks that never stop collecting have no stragglers to cut",
    ),
    Rule(
        ("overlap", frozenset({"continuous"})),
        ("rollout", frozenset({"fixed", "variable"})),
        "what never ends has no rollout to fill",
    ),
    Rule(
        ("average", frozenset({"central"})),
        PREEMPTS,
        "one rank collects for all, so there are no ranks to cut",
    ),
    Rule(
        ("rollout", frozenset({"trajectories"})),
        PREEMPTS,
        "a batch is complete or it is not learned",
    ),
    Rule(
        ("collect", frozenset({"actorside"})),
        PREEMPTS,
        "actors send whole trajectories, which cannot be cut",
    ),
    Rule(
        ("collect", frozenset({"actorside"})),
        ("rollout", frozenset({"variable"})),
        "an actor must know how many steps it is to play",
    ),
    Rule(
        ("collect", frozenset({"actorside"})),
        ("overlap", frozenset({"oneahead"})),
        "actors take the newest weights, not those of one rollout before",
    ),
)


def why_impossible(mix: Mapping[str, str], variants: Mapping[str, Mapping[str, type]]) -> str | None:
    """None if a mix makes a system; else why not, with the nearest mixes that do.

    Args:
        mix: the variant of each choice.
        variants: all variants of each choice.
    """
    rule = next((rule for rule in RULES if rule.forbids(mix)), None)
    if rule is None:
        return None
    what = " with ".join(f"{choice}={mix[choice]}" for choice, _ in (rule.first, rule.second))
    return f"{what}: {rule.why}; nearest: {', or '.join(nearest(mix, variants))}"


def nearest(mix: Mapping[str, str], variants: Mapping[str, Mapping[str, type]]) -> list[str]:
    """Up to `NUM_NEAREST` possible mixes that change the fewest choices, as settings such as `preempt=never`."""
    for num_changes in range(1, len(mix) + 1):
        found = [
            ":".join(f"{choice}={variant}" for choice, variant in change.items())
            for choices in itertools.combinations(mix, num_changes)
            for chosen in itertools.product(*(variants[choice] for choice in choices))
            for change in [dict(zip(choices, chosen, strict=True))]
            if not any(rule.forbids({**mix, **change}) for rule in RULES)
        ]
        if found:
            return found[:NUM_NEAREST]
    raise AssertionError("some mix is possible")
