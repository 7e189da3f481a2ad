"""The entry point `pettingzoo`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec

from rlbench.scenarios.gym.named import moved, names_code
from rlbench.scenarios.pettingzoo_envs.finding import SHORT
from rlbench.scenarios.pettingzoo_envs.scenario import PettingZooScenario


class PettingZooFamily:
    """`pettingzoo/butterfly/…`, `pettingzoo/<module>`, `pettingzoo/<module>:<name>`, `pettingzoo/<file>.py:<class>`."""

    draws = True
    about = "any parallel environment of PettingZoo: pettingzoo/mpe/simple_spread_v3, pettingzoo/./FILE.py:CLASS"
    variants: tuple[str, ...] = ()

    def unavailable(self) -> str | None:
        """None, or the command that installs PettingZoo."""
        return None if find_spec("pettingzoo") else "pettingzoo is not installed; pip install pettingzoo"

    def make(self, variant: str, workload: str) -> PettingZooScenario:
        """Makes the scenario of an environment."""
        return PettingZooScenario(name=f"pettingzoo/{variant}" if variant else "pettingzoo", workload=workload)

    def names_code(self, variant: str, settings: Mapping[str, str]) -> bool:
        """Whether a scenario names code of the user's: all but PettingZoo's own environments are."""
        return SHORT.fullmatch(variant) is None or names_code(variant, settings)

    def moved(
        self, variant: str, settings: Mapping[str, str], move: Callable[[str], str]
    ) -> tuple[str, dict[str, str]]:
        """The variant and the settings, with the paths of files moved; see `harness.contract.extras.NamesFiles`."""
        return moved(variant, settings, move)


FAMILY = PettingZooFamily()
