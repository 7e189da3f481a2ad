"""The options of `rlbench profile` that say what is run; see `harness.cli.flags`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileOptions:
    """The options as typed."""

    scenario: Annotated[str | None, "Scenario, with settings: vizdoom/basic:num_envs=4. [default: pointnav]"] = None
    workload: Annotated[str | None, "homogeneous or heterogeneous. [default: homogeneous]"] = None
    device: Annotated[
        str | None,
        "cuda, cpu or emulated. [default: cuda where there is a GPU; else emulated for emulated/..., or cpu]",
    ] = None
    seconds: Annotated[
        float | None, "Of training of each of two runs, on the wall clock; their mini-batches differ. [default: 20]"
    ] = None
    seed: Annotated[int | None, "Of the run. [default: 0]"] = None
    system: Annotated[
        str | None, "Runs it, on 1 GPU; batches that differ in size tell what an item of one costs. [default: nover]"
    ] = None
