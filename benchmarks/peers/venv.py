"""A peer's virtual environment: peers pin packages that exclude one another, and ours; see `harness.plan.libraries`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.machine.virtualenvs import python_in
from harness.plan import libraries

DISTRIBUTIONS = {"sample_factory": "sample-factory", "sb3_ppo": "stable-baselines3", "rllib_appo": "ray"}
"""What a peer is known by."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    """A library, with what the shared workload needs beside it."""

    peer: str

    @property
    def name(self) -> str:
        """Of the environment, which is not that of the system."""
        return f"peer-{self.peer}"

    @property
    def distribution(self) -> str:
        """The library."""
        return DISTRIBUTIONS[self.peer]

    @property
    def requirements(self) -> Path:
        """Beside this file."""
        return Path(__file__).with_name(f"{self.peer}.txt")

    def unavailable(self, place: Path) -> str | None:  # noqa: ARG002  wherever that is
        """Nothing hinders pip."""
        return None


def peer_python(peer: str) -> Path:
    """The peer's interpreter; makes its environment first where there is none, or an old one. Takes minutes then.

    Raises ValueError: an unknown peer, with the known ones; pip's error.
    """
    if peer not in DISTRIBUTIONS:
        raise ValueError(f"peer {peer}: unknown; known: {', '.join(DISTRIBUTIONS)}")
    library = Peer(peer=peer)
    libraries.install(library, lambda line: print(line, flush=True))
    return python_in(libraries.place_of(library))
