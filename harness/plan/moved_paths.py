"""Paths in the texts of options, moved: relative to one folder as they were written, to another as they come out.

Which parts of a scenario are paths its family says (`harness.contract.extras.NamesFiles`). Paths that begin with `/`
stay as they are, and those with `~` become such.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlbench.harness.contract.extras import NamesFiles
from rlbench.harness.plan import registry
from rlbench.harness.plan.overrides import split_scenario
from rlbench.harness.plan.system_list import named_file, split_list


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """From one folder to another; both are absolute, without links."""

    home: Path
    to: Path

    def path(self, text: str, separators: str = "") -> str:
        """The path, normalised, from the other folder; a `./` at its beginning stays.

        Raises ValueError where a folder on the way has one of the `separators` in its name.
        """
        text = os.path.expanduser(text)  # noqa: PTH111  a Path would drop a `./`, which names of scenarios keep
        if not text or text.startswith("/") or self.home == self.to:
            return text
        whole = os.path.join(self.home, text)  # noqa: PTH118  the same
        if os.path.realpath(os.path.normpath(whole)) != os.path.realpath(whole):  # it leaves a link by `..`
            made = whole
        else:
            made = ("./" if text.startswith("./") else "") + os.path.relpath(whole, self.to)
        if added := sorted(set(separators) & (set(made) - set(text))):
            raise ValueError(
                f"{text}: is {made} from {self.to}, in which {added[0]!r} separates parts; work in its folder"
            )
        return made

    def systems(self, text: str) -> str:
        """`--systems`, with the paths of trainers' files moved."""
        return ",".join(map(self._system, split_list(text, "--systems")))

    def _system(self, part: str) -> str:
        file = named_file(part)
        return f"{file[0]}={self.path(file[1], ',')}" if file else part

    def scenarios(self, text: str) -> str:
        """`--scenario`, with the paths in each moved. Raises ValueError, as planning does, where it has no form."""
        return ",".join(map(self._scenario, split_list(text, "--scenario")))

    def _scenario(self, part: str) -> str:
        name, settings = split_scenario(part, "--scenario")
        family_name, slash, variant = name.partition("/")
        if family_name not in registry.names(registry.SCENARIOS):
            return part  # planning says so
        family: object = registry.load_family(family_name)
        if not isinstance(family, NamesFiles):
            return part
        variant, settings = family.moved(variant, settings, self._of_scenario)
        return ":".join([f"{family_name}{slash}{variant}", *(f"{key}={value}" for key, value in settings.items())])

    def _of_scenario(self, text: str) -> str:
        return self.path(text, ",:+=")


MOVES: dict[str, Callable[[Move, str], str]] = {"systems": Move.systems, "scenario": Move.scenarios, "out": Move.path}
"""By option: how the paths in its text are moved; other options have none."""
