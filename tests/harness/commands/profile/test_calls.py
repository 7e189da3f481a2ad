"""Profiles of runs whose environments were stepped in batches: of calls, each of which all of them have as a span."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlbench.harness.commands.profile.calls import once_each
from rlbench.harness.commands.profile.gpu import AssumedLink
from rlbench.harness.commands.profile.making import MeasuredProfile, mean_step_ms, measure, write_profile
from rlbench.harness.commands.profile.own_rate import NUM_SEEDS, SECONDS, brought_to_its_rate
from rlbench.harness.predicting.points import Length, Planned, RatePoint
from rlbench.results.records.store import StoredRun
from rlbench.scenarios.emulated.profile import Profile, read_profile
from tests.harness.run.synthetic_run import make_series, make_spans, record_of, write_run

SIZE = 4
TRUTH = read_profile("open-fridge").model_copy(
    update={"episode": read_profile("open-fridge").episode.model_copy(update={"mean_steps": 1e9})}
)
"""Its times are here those of calls, and nothing is reset."""


def with_step(median_ms: float) -> Profile:
    """Calls that take another time, without a slow mode."""
    step = TRUTH.step.model_copy(update={"median_ms": median_ms})
    return TRUTH.model_copy(update={"step": step, "collision": TRUTH.collision.model_copy(update={"share": 0.0})})


def in_batches(calls: pd.DataFrame, size: int = SIZE) -> pd.DataFrame:
    """The spans of all environments, where each environment in `calls` is a batch; in no order."""
    is_env = calls["environment"] >= 0
    each = [calls[is_env].assign(environment=size * calls["environment"][is_env] + place) for place in range(size)]
    return pd.concat([*each, calls[~is_env]]).sample(frac=1, random_state=0)


def run_of(folder: Path, profile: Profile, size: int, num_steps: int = 256, **changes: Any) -> StoredRun:
    """A run of 6 batches."""
    folder.mkdir()
    infer = profile.gpu.infer_fixed_ms, profile.gpu.infer_item_ms
    spans = make_spans(
        profile, num_envs=6, num_steps=num_steps, takes=lambda _, calls: (infer[0] + infer[1] * size * calls) / 1e3
    )
    spans = in_batches(spans, size)
    series = make_series(num_learned=4000, num_reused=8000)
    return StoredRun(path=write_run(folder, spans, series), record=record_of(TRUTH, spans, **changes))


def profile_of(measured: MeasuredProfile, folder: Path) -> Profile:
    """As its users read it."""
    path = folder / "measured.toml"
    write_profile(measured.profile, path, measured.comments)
    return read_profile(str(path))


def test_a_call_counts_once() -> None:
    """Whatever it is of its environments: a step of some and a reset of the others is a step."""
    calls = make_spans(TRUTH, num_envs=3, num_steps=16)
    rows = in_batches(calls)
    is_reset = (rows["environment"] % SIZE == 1) & (rows["kind"] == "simulate")
    for spans in (rows, rows.assign(kind=rows["kind"].where(~is_reset, "reset"))):
        found, size = once_each(spans)
        assert size == SIZE
        assert set(found["envs"]) == {0, SIZE}
        found = found.assign(
            environment=np.where(found["envs"] > 0, found["environment"] // SIZE, found["environment"])
        )
        ours, theirs = (
            frame.sort_values(["rank", "environment", "begin_s"])[list(calls)].reset_index(drop=True)
            for frame in (found, calls)
        )
        assert ours.equals(theirs)
    alone, size = once_each(calls)
    assert size == 1
    assert alone[list(calls)].equals(calls)


def test_resets_by_a_call_of_their_own_are_in_the_calls_time(tmp_path: Path) -> None:
    """As where a vector environment leaves resets to its user: some environments of a batch have them, some not."""
    run = run_of(tmp_path / "run", with_step(8.0), SIZE)
    spans = pd.read_parquet(run.path / "spans.parquet")
    stepped = spans[(spans["kind"] == "simulate") & (spans["environment"] % SIZE == 2)]
    resets = stepped.assign(begin_s=stepped["end_s"], end_s=stepped["end_s"] + 1e-3, kind="reset")
    before = measure(run, AssumedLink()).calls
    write_run(run.path, pd.concat([spans, resets]), None)
    (after,) = measure(run, AssumedLink()).calls
    assert after.mean_ms == pytest.approx(before[0].mean_ms + 1.0)
    assert after.num == before[0].num


def test_a_run_in_batches_gives_the_time_of_a_call(tmp_path: Path) -> None:
    """The table has its size; inference is found by numbers of environments, and the profile is in batches itself."""
    run = run_of(tmp_path / "run", TRUTH, SIZE)
    measured = measure(run, AssumedLink())
    found = profile_of(measured, tmp_path)
    calls = pd.read_parquet(run.path / "spans.parquet")
    calls = calls[(calls["kind"] == "simulate") & (calls["environment"] % SIZE == 0)]
    assert found.collect.envs_per_batch == SIZE
    assert found.collect.num_envs == 6 * SIZE
    assert found.batch.sizes == (SIZE,)
    assert found.batch.step_ms[0] == pytest.approx(1e3 * (calls["end_s"] - calls["begin_s"]).mean(), rel=1e-3)
    assert found.gpu.infer_fixed_ms == pytest.approx(TRUTH.gpu.infer_fixed_ms, rel=0.03)
    assert found.gpu.infer_item_ms == pytest.approx(TRUTH.gpu.infer_item_ms, rel=0.03)
    assert measured.mean_step_ms == pytest.approx(mean_step_ms(measured.profile, "homogeneous"), rel=1e-3)
    of_single = {"step.median_ms", "step.sigma", "collision.median_ms", "episode.reset_ms", "heterogeneous.sigma"}
    assert of_single <= set(measured.assumed)
    assert not [key for key in measured.assumed if key.startswith("batch")]


def test_several_runs_give_a_time_for_each_size(tmp_path: Path) -> None:
    """Runs with other batches add their sizes, one of single environments the size 1 and how these step alone."""
    sizes = {8: 40.0, 1: 6.0, SIZE: 20.0}
    runs = [run_of(tmp_path / str(size), with_step(ms), size) for size, ms in sizes.items()]
    together = measure(runs[0], AssumedLink(), more=runs[1:])
    found = profile_of(together, tmp_path)
    assert found.batch.sizes == (1, SIZE, 8)
    assert found.step.median_ms == pytest.approx(6.0, rel=0.1)
    assert not {"step.median_ms", "step.sigma"} & set(together.assumed)
    # the factors of steps and episodes have a mean above 1
    assert found.batch.step_ms == pytest.approx([6.0, 20.0, 40.0], rel=0.2)
    assert (found.collect.envs_per_batch, found.collect.num_envs) == (8, 48)
    single = profile_of(measure(runs[1], AssumedLink(), more=runs[2:]), tmp_path)
    assert (single.collect.envs_per_batch, single.collect.num_envs) == (1, 6)
    assert single.step.median_ms == pytest.approx(6.0, rel=0.1)
    assert single.batch.sizes == (1, SIZE)
    twice = measure(runs[2], AssumedLink(), more=[runs[2]])
    (one,) = measure(runs[2], AssumedLink()).calls
    assert twice.calls == (replace(one, num=2 * one.num),)
    assert measure(runs[1], AssumedLink()).calls == ()


def test_a_profile_gives_the_rate_of_its_run(tmp_path: Path) -> None:
    """Predicted as it is, in batches, it has the steps/s of the run, by the time that nothing measures."""
    run = run_of(tmp_path / "run", TRUTH, SIZE)
    measured, path = measure(run, AssumedLink()), tmp_path / "found.toml"
    write_profile(measured.profile, path, {})
    point = RatePoint(system="nover", scenario=f"emulated/{path}")
    planned = Planned([point], Length(seconds=SECONDS, num_seeds=lambda _: NUM_SEEDS))
    rate = 0.8 * planned.rates({"cpu.schedule_ms": 0.0})[point]
    figures = run.record.figures.model_copy(update={"steps_per_s": rate})
    slower = replace(run, record=run.record.model_copy(update={"figures": figures}))
    entry = brought_to_its_rate(measured, slower, path).tables["cpu"]["schedule_ms"]
    assert planned.rates({"cpu.schedule_ms": entry.value})[point] == pytest.approx(rate, rel=0.02)


def test_pools_are_refused(tmp_path: Path) -> None:
    """Where environments answer in ever other groups there is no call, which is said in one line."""
    run = run_of(tmp_path / "run", TRUTH, SIZE)
    spans = pd.read_parquet(run.path / "spans.parquet")
    number = spans["environment"]
    shifted = number.where((number < 0) | (spans["begin_s"] < 1), (number + 1) % (6 * SIZE))
    other = tmp_path / "other"
    other.mkdir()
    write_run(other, spans.assign(environment=shifted), make_series(num_learned=4000, num_reused=8000))
    told = record_of(TRUTH, spans)
    for of_recv, is_whole in ((SIZE, True), (2, False)):
        told.configuration["scenario"]["recv"] = of_recv
        if is_whole:
            assert measure(replace(run, record=told), AssumedLink()).calls[0].size == SIZE
    for pooled in (replace(run, path=other), replace(run, record=told)):
        with pytest.raises(ValueError, match="the run has environments in pools") as refused:
            measure(pooled, AssumedLink())
        assert str(refused.value).startswith(f"{pooled.path}: the run has ")
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"cell": {"device": "cpu", "workload": "homogeneous"}},
            "the run is on the device cpu, the first one on the device em",
        ),
        ({"cell": {"workload": "heterogeneous", "device": "emulated"}}, "the run is of the workload heterogeneous"),
        ({"configuration": {"scenario": {"num_envs": 24}}}, "the run has another scenario.profile than the first"),
        ({"machine": {"cpu_model": "Z80"}}, "the run is on Z80, the first one on "),
        ({"status": "failed", "reason": "a rank died"}, "the run is failed, a profile needs a finished one"),
    ],
)
def test_runs_of_something_else_are_refused(changes: dict[str, Any], expected: str, tmp_path: Path) -> None:
    """In one line with the run's name."""
    first = run_of(tmp_path / "first", TRUTH, SIZE, num_steps=64)
    other = run_of(tmp_path / "other", TRUTH, 2 * SIZE, num_steps=64, **changes)
    with pytest.raises(ValueError, match=expected) as refused:
        measure(first, AssumedLink(), more=[other])
    assert str(refused.value).startswith(str(other.path))
    assert "\n" not in str(refused.value)


def test_runs_whose_ranks_have_other_cores_are_refused(tmp_path: Path) -> None:
    """More cores learn faster, which would be taken for the cost of a mini-batch."""
    machine = {"cpu_model": "Z80", "num_affine_cores": 4}
    first = run_of(tmp_path / "first", TRUTH, SIZE, num_steps=64, machine=machine, cell={"device": "cpu"})
    other = run_of(
        tmp_path / "other", TRUTH, 2 * SIZE, num_steps=64, machine=machine, cell={"device": "cpu", "gpus": 2}
    )
    with pytest.raises(ValueError, match=r"is on Z80, 2 core\(s\) for each rank, the first one on Z80, 4 core"):
        measure(first, AssumedLink(), more=[other])


def test_batches_that_are_stepped_in_other_ways_are_refused(tmp_path: Path) -> None:
    """A call that waits for processes says nothing of one that steps them in turn; single environments go with each."""
    ways = ("none", "sync", "process")
    runs = [run_of(tmp_path / way, TRUTH, 1 if way == "none" else SIZE, num_steps=64) for way in ways]
    for run, way in zip(runs, ways, strict=True):
        run.record.configuration["scenario"] |= {"vector": way}
    assert [calls.size for calls in measure(runs[1], AssumedLink(), more=runs[:1]).calls] == [1, SIZE]
    with pytest.raises(ValueError, match="the run has vector=process, another one sync: the batches of a profile"):
        measure(runs[0], AssumedLink(), more=runs[1:])


def test_equal_spans_by_chance_make_no_batch() -> None:
    """A few steps of several environments, or of several batches, may have the same nanoseconds."""
    calls = make_spans(TRUTH, num_envs=4, num_steps=256)
    calls = calls.sort_values("begin_s", kind="stable").reset_index(drop=True)
    of_two = calls[(calls["environment"] == 0) & (calls["kind"] == "simulate")].iloc[10:12]
    others = calls[(calls["environment"] == 3) & (calls["kind"] == "simulate")].iloc[10:12]
    calls.loc[others.index, ["begin_s", "end_s"]] = of_two[["begin_s", "end_s"]].to_numpy()
    assert once_each(calls)[1] == 1
    found, size = once_each(in_batches(calls))
    assert size == SIZE
    assert set(found["envs"]) == {0, SIZE}
    assert len(found) == len(calls)
