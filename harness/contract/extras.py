"""What a scenario may have beside `contract.Scenario`, each by itself.

Two entries at the top of a Dict observation are known by name: `pixels`, uint8 [C, H, W], and `depth`, float32
[1, H, W], metres. Where others are images is found from shape and dtype, or said by `image_order`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

from rlbench.harness.contract.scenario import Scenario


class Extras(Protocol):
    """Attributes that are read where a scenario has them; what holds where it has not is in brackets."""

    action_bounds: Literal["clip", "tanh"]
    """How a policy's numbers come within the bounds of a Box: they are cut, or squashed (`clip`)."""
    action_std: Literal["shared", "learned"]
    """Whether all states have one standard deviation of each number, or the network gives it (`shared`)."""
    normalize_observations: bool
    """Whether policies read vectors normalised by running moments (False): those of all ranks that average their
    gradients; ranks that do not wait for each other have only their own."""
    image_order: Literal["auto", "hwc", "chw"]
    """How images lie in observations; `auto` finds it, or says that it cannot (`auto`)."""
    code: Sequence[str]
    """Hashes of files that its environments are made from: where they differ, it is other work (none)."""
    sleeps: bool
    """Whether steps sleep instead of computing, so that several workers may share a process (False)."""
    shm_bytes: int
    """Bytes that the simulators of one rank write in /dev/shm (0)."""
    shm_names: Sequence[str]
    """How names of files that simulators leave in /dev/shm begin (none)."""


@runtime_checkable
class Completes(Protocol):
    """What a scenario may have whose defaults depend on its settings."""

    def completed(self) -> Scenario:
        """The scenario with these defaults, once all its settings are known; what was set is set in it again.

        It is called in every process that loads the scenario. Raises ValueError for what cannot be.
        """


@runtime_checkable
class Draws(Protocol):
    """What a scenario may have whose environments draw only if they are made so, which costs them speed.

    A family whose scenarios draw has the attribute `draws`, which is True.
    """

    def drawn(self) -> Scenario:
        """The scenario with environments whose `render()` gives what there is to see now, for `evaluate --video`.

        uint8 [H, W, 3], always of one size; it changes nothing. `metadata["render_fps"]` says how many env steps are a
        second of play.

        It is only called for `rlbench evaluate --video`; all else about the environments must stay the same. Raises
        ValueError where they cannot.
        """


@runtime_checkable
class NamesCode(Protocol):
    """What a family may have whose variants or settings may name code: a file, or a module.

    What it says so of is loaded only when the user has typed it in the same command: what stands in a plan or in a
    record may be anybody's.
    """

    def names_code(self, variant: str, settings: Mapping[str, str]) -> bool:
        """Whether they do; loads nothing."""


@runtime_checkable
class NamesFiles(Protocol):
    """What a family may have whose variants or settings may be paths, which in a sweep file are relative to it."""

    def moved(
        self, variant: str, settings: Mapping[str, str], move: Callable[[str], str]
    ) -> tuple[str, dict[str, str]]:
        """The variant and the settings, with `move` of each path in the place of that path; loads nothing."""
