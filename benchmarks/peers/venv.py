"""A peer's virtual environment: peers pin packages that exclude one another, and ours; see `harness.plan.libraries`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlbench.harness.machine.virtualenvs import python_in
from rlbench.harness.plan import libraries

DISTRIBUTIONS = {
    "sample_factory": "sample-factory",
    "sb3_ppo": "stable-baselines3",
    "rllib_appo": "ray",
    "cleanrl_envpool": "envpool",
}
"""The distribution of each peer's library."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    """A peer's library, together with what the shared workload needs."""

    peer: str

    @property
    def name(self) -> str:
        """Name of the virtual environment; the system with the same library has another one."""
        return f"peer-{self.peer}"

    @property
    def distribution(self) -> str:
        """The distribution of the library."""
        return DISTRIBUTIONS[self.peer]

    @property
    def requirements(self) -> Path:
        """The requirements file, beside this file."""
        return Path(__file__).with_name(f"{self.peer}.txt")

    def unavailable(self, place: Path) -> str | None:  # noqa: ARG002  wherever that is
        """None: pip alone can install it."""
        return None


def peer_python(peer: str) -> Path:
    """The peer's interpreter. First makes its environment if there is none, or an old one, which takes minutes.

    Raises ValueError for an unknown peer, naming the known ones, and with pip's error.
    """
    if peer not in DISTRIBUTIONS:
        raise ValueError(f"peer {peer}: unknown; known: {', '.join(DISTRIBUTIONS)}")
    library = Peer(peer=peer)
    libraries.install(library, lambda line: print(line, flush=True))
    return python_in(libraries.environment_of(library))
