"""The tables that `rlbench reproduce` knows: cells, published figures, checks and tolerances."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rlbench.harness.commands.fit.command import LENGTH
from rlbench.harness.commands.reproduce.claims import (
    AgainstPrediction,
    EachWithin,
    MeanErrorWithin,
    MostWithin,
    RatioWithin,
)
from rlbench.harness.commands.reproduce.sample_factory import sample_factory_table1, sample_factory_table_a2
from rlbench.harness.commands.reproduce.table import Fit, Fits, PaperTable, Row
from rlbench.harness.predicting.points import Length, RatePoint
from rlbench.results import published

STEADY = Length(seconds=200.0, num_seeds=lambda _: 3)
OPEN_FRIDGE = Fits(
    scenario="emulated/open-fridge",
    start={
        "step.median_ms": 5.0,
        "collision.median_ms": 50.0,
        "collision.share": 0.05,
        "collision.mean_stay_steps": 5.0,
        "episode.sigma": 0.3,
        "gpu.render_ms": 1.0,
        "gpu.infer_fixed_ms": 5.0,
        "gpu.infer_item_ms": 0.05,
        "gpu.learn_item_ms": 0.15,  # section 2.2: 150 ms for a mini-batch of 1,024
        "gpu.render_while_learning_factor": 2.0,
        "gpu.learn_while_rendering_factor": 2.0,
        "network.synchronize_ms": 300.0,
        "network.synchronize_doubling_ms": 50.0,
    },
    leave_out=("system", "GPUs"),
    length=LENGTH,
)
"""The 13 keys of the profile that are fitted, from round numbers."""
GIBSON = Fits(
    scenario="emulated/gibson",
    start={"network.synchronize_doubling_ms": 50.0, "step.sigma": 0.5},
    leave_out=("GPUs",),
    length=Length(protocol="ddppo", num_seeds=lambda gpus: max(2, 64 // gpus)),
)


def ver_table1() -> PaperTable:
    """VER, Table 1: env steps/s of DD-PPO, NoVER, VER and APPO on 1 to 8 GPUs, Habitat 2.0 open fridge.

    The profile `open-fridge` is fitted to the column of means. The column of maxima is held out: it is predicted on
    `open-fridge-steady`, the same profile without collisions and episode factors.

    Tolerances: at least 15 of the 16 means within 8 %; their mean absolute error at most 5 %; VER/DD-PPO, VER/NoVER and
    VER/APPO on 1 and on 8 GPUs within 12 % of the published ratios.
    """
    kinds: tuple[tuple[str, Fit, str], ...] = (("mean", "fitted", ""), ("max", "held out", "-steady"))
    cells = published.read("ver_table1")
    rows = {
        kind: tuple(
            Row(
                name=f"{kind} of {cell['system']} on {_gpus(cell)}",
                labels=(kind, cell["system"], cell["gpus"]),
                published=float(cell[f"{kind}_sps"]),
                fit=fit,
                point=RatePoint(
                    system=cell["system"], gpus=int(cell["gpus"]), scenario=f"emulated/open-fridge{suffix}"
                ),
            )
            for system in ("ddppo", "nover", "ver", "appo")
            for cell in cells
            if cell["system"] == system
        )
        for kind, fit, suffix in kinds
    }
    means = tuple(row.name for row in rows["mean"])
    ratios = tuple(
        RatioWithin(above=f"mean of ver on {gpus}", below=f"mean of {other} on {gpus}", tolerance=0.12)
        for gpus in ("1 GPU", "8 GPUs")
        for other in ("ddppo", "nover", "appo")
    )
    return PaperTable(
        name="ver-table1",
        published=("ver_table1",),
        unit="env steps/s",
        titles=("figure", "system", "GPUs"),
        rows=(*rows["mean"], *rows["max"]),
        checks=(
            MostWithin(names=means, least=15, tolerance=0.08),
            MeanErrorWithin(names=means, what="16 means", most=0.05),
            *ratios,
        ),
        length=STEADY,
        fits=(OPEN_FRIDGE,),
        run_options="--seeds 0,1,2 --seconds 60",
    )


def ver_navigation() -> PaperTable:
    """VER, Fig. 4A: env steps/s of DD-PPO and VER on 8 GPUs, PointNav in HM3D and ObjectNav in MP3D, Habitat 1.0.

    Tolerances: each figure within 8 %; VER/DD-PPO within 10 % of the published ratio.
    """
    scenarios = {"pointnav": "emulated/pointnav-hm3d", "objectnav": "emulated/objectnav-mp3d"}
    rows = tuple(
        Row(
            name=f"{cell['system']} on {cell['task']}",
            labels=(cell["task"], cell["system"], cell["gpus"]),
            published=float(cell["sps"]),
            fit="fitted",
            point=RatePoint(system=cell["system"], gpus=int(cell["gpus"]), scenario=scenarios[cell["task"]]),
        )
        for cell in published.read("ver_navigation")
    )
    ratios = (RatioWithin(above=f"ver on {task}", below=f"ddppo on {task}", tolerance=0.10) for task in scenarios)
    return PaperTable(
        name="ver-navigation",
        published=("ver_navigation",),
        unit="env steps/s",
        titles=("task", "system", "GPUs"),
        rows=rows,
        checks=(EachWithin(names=tuple(row.name for row in rows), tolerance=0.08), *ratios),
        length=STEADY,
        run_options="--seeds 0,1,2 --seconds 60",
    )


def ddppo_scaling() -> PaperTable:
    """DD-PPO, Section 5 and Fig. 4: speed-up over 1 GPU of the same scenes and threshold, 4 environments per GPU.

    The profile `gibson` is fitted to the homogeneous figures. For the heterogeneous ones the paper states no number:
    with p = 60 % they are 'near-identical', and with p = 100 % poor; the spread of `gibson+mp3d` was chosen to match.

    Tolerances: homogeneous on 8, 128 and 256 GPUs each within 5 %; heterogeneous with p = 0.6 on 8, 64 and 256 GPUs
    within 15 % of what is predicted for homogeneous; heterogeneous with p = 1.0 on 256 GPUs at least 30 % below that
    with p = 0.6.

    A rank has only 4 environments, so the rate of 1 GPU varies much between seeds; it is a mean over 64.
    """
    stated = {int(cell["gpus"]): float(cell["speedup"]) for cell in published.read("ddppo_scaling")}
    homogeneous = tuple(_speed_up("homogeneous", "0.6", gpus, stated.get(gpus)) for gpus in (8, 64, 128, 256))
    heterogeneous = tuple(_speed_up("heterogeneous", p, gpus, None) for p in ("0.6", "1.0") for gpus in (8, 64, 256))
    low = _speed_up("heterogeneous", "0.2", 256, None)
    near = tuple(
        AgainstPrediction(
            name=f"heterogeneous p=0.6 on {gpus} GPUs",
            other=f"homogeneous p=0.6 on {gpus} GPUs",
            low=-0.15,
            high=0.15,
        )
        for gpus in (8, 64, 256)
    )
    below = AgainstPrediction(
        name="heterogeneous p=1.0 on 256 GPUs",
        other="heterogeneous p=0.6 on 256 GPUs",
        high=-0.30,
    )
    return PaperTable(
        name="ddppo-scaling",
        published=("ddppo_scaling",),
        unit="speed-up in env steps/s over 1 GPU",
        titles=("workload", "p", "GPUs"),
        rows=(*homogeneous, *heterogeneous, low),
        checks=(
            EachWithin(names=tuple(row.name for row in homogeneous if row.published is not None), tolerance=0.05),
            *near,
            below,
            AgainstPrediction(
                name=low.name,
                other="heterogeneous p=0.6 on 256 GPUs",
                high=None,
                remark="the paper has near-linear scaling for p above 0.5, which suggests less below; in the model "
                "some ranks have whole rollouts at every p, and all wait for these to learn",
            ),
        ),
        note="heterogeneous: the paper states no number; the spread of scenes was chosen to meet what its text says",
        length=Length(protocol="ddppo", num_seeds=lambda gpus: min(64, max(2, 512 // gpus))),
        fits=(GIBSON,),
        run_options="--seeds 0..3 --protocol ddppo",
    )


TABLES: Mapping[str, Callable[[], PaperTable]] = {
    "ver-table1": ver_table1,
    "ver-navigation": ver_navigation,
    "ddppo-scaling": ddppo_scaling,
    "sample-factory-table1": sample_factory_table1,
    "sample-factory-table-a2": sample_factory_table_a2,
}


def _gpus(cell: Mapping[str, str]) -> str:
    return "1 GPU" if cell["gpus"] == "1" else f"{cell['gpus']} GPUs"


def _speed_up(workload: str, p: str, gpus: int, stated: float | None) -> Row:
    scenario = {"homogeneous": "emulated/gibson", "heterogeneous": "emulated/gibson+mp3d"}[workload]
    one, many = (
        RatePoint(system=f"ddppo:preempt.p={p}", gpus=count, scenario=scenario, workload=workload)
        for count in (1, gpus)
    )
    return Row(
        name=f"{workload} p={p} on {gpus} GPUs",
        labels=(workload, p, str(gpus)),
        published=stated,
        fit="-" if stated is None else "fitted",
        point=many,
        base=one,
    )
