"""Sample Factory's Table 1, VizDoom, as `rlbench reproduce` makes it."""

from __future__ import annotations

from collections.abc import Mapping

from harness.commands.reproduce.claims import EachWithin, MeanErrorWithin
from harness.commands.reproduce.table import PaperTable, RatePoint, Row
from results import published

SAMPLE_FACTORY = "sample_factory_appo"
"""Its name in the published tables."""
APPO = "appo:overlap.max_lag=1000"
"""Without a bound on the lag, as Sample Factory is."""
VIZDOOM = "emulated/vizdoom-battle"
FRAMES = 4
"""Sample Factory's frameskip: frames per env step."""


def sample_factory_table1() -> PaperTable:
    """Sample Factory, Table 1 (VizDoom) and Table A.2: env frames/s on 36 cores and a GPU, 4 frames to an env step.

    The figure of Table 1 is the one with 1,728 environments. The profile `vizdoom-battle` is fitted to it, to the one
    with 72 and to pure simulation (what the cores give when nothing waits for inference). Those with 144 to 1,152 are
    held out. The other systems of Table 1 are other people's. Sample Factory discards nothing, so the lag has no bound
    here: 1,728 trajectories of 32 steps make 27 updates, and `appo` by default discards what is older than 20.

    Tolerances: the figure of Table 1 and pure simulation each within 10 %. The mean absolute error of the held-out
    figures is reported.
    """
    rows = [_vizdoom(cell) for cell in published.read("sample_factory_table_a2") if _is_vizdoom(cell)]
    rows += [_of_table1(cell) for cell in published.read("sample_factory_table1") if cell["system"] != SAMPLE_FACTORY]
    held_out = tuple(row.name for row in rows if row.fit == "held out")
    checked = (f"{SAMPLE_FACTORY} with 1728 envs", "pure_simulation")
    return PaperTable(
        name="sample-factory-table1",
        published=("sample_factory_table1", "sample_factory_table_a2"),
        unit="env frames/s, 4 to an env step",
        titles=("system", "envs"),
        rows=tuple(rows),
        checks=(
            EachWithin(names=checked, tolerance=0.10),
            MeanErrorWithin(names=held_out, what="144 to 1152 envs, held out"),
        ),
        note="appo without a bound of the lag: Sample Factory discards no sample for its age",
        seconds=30.0,
        num_seeds=lambda _: 3,
        run_options="--seconds 160 --time-scale 16",
    )


def _is_vizdoom(cell: Mapping[str, str]) -> bool:
    return (cell["machine"], cell["simulator"]) == ("system2", "vizdoom")


def _vizdoom(cell: Mapping[str, str]) -> Row:
    num_envs = cell["num_envs"]
    return Row(
        name=f"{SAMPLE_FACTORY} with {num_envs} envs",
        labels=(SAMPLE_FACTORY, num_envs),
        published=float(cell[SAMPLE_FACTORY]),
        fit="fitted" if num_envs in {"72", "1728"} else "held out",
        point=RatePoint(system=APPO, scenario=f"{VIZDOOM}:num_envs={num_envs}"),
        frames_per_env_step=FRAMES,
    )


def _of_table1(cell: Mapping[str, str]) -> Row:
    is_simulation = cell["system"] == "pure_simulation"
    return Row(
        name=cell["system"],
        labels=(cell["system"], "-"),
        published=float(cell["vizdoom_fps"]),
        fit="fitted" if is_simulation else "-",
        point=RatePoint(system=None, scenario=VIZDOOM) if is_simulation else None,
        frames_per_env_step=FRAMES,
    )
