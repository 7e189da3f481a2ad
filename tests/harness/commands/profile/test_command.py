from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rlbench.harness.commands.profile.command import with_other_minibatches
from rlbench.harness.commands.profile.gpu import AssumedLink
from rlbench.harness.commands.profile.making import measure, write_profile
from rlbench.harness.commands.profile.own_rate import NUM_SEEDS, SECONDS, brought_to_its_rate
from rlbench.harness.devices import kinds
from rlbench.harness.plan.options import RunOptions
from rlbench.harness.plan.planning import plan
from rlbench.harness.plan.request import complete
from rlbench.harness.predicting.points import Length, Planned, RatePoint
from rlbench.results.records.store import read_runs
from rlbench.scenarios.emulated.profile import Profile, read_profile
from tests.harness.command import Ended, assert_refused, call, launch
from tests.harness.commands.profile.measured_profile import write_truth


@dataclass(frozen=True, kw_only=True, slots=True)
class Profiled:
    """A run of a profile with small costs, and the profile that was made of it."""

    folder: Path
    ended: Ended
    truth: Profile
    found: Profile


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Profiled:
    """Measures it, four times as fast."""
    folder = tmp_path_factory.mktemp("profiled")
    write_truth(folder / "truth.toml", factor=1, step_sigma=0.01, collision_ms=60.0)
    ended = launch(
        *("profile", "--scenario", "emulated/truth.toml:time_scale=0.25", "--seconds", "4", "--out", "found.toml"),
        *("--device", "emulated", "--latency-ms", "0.1"),
        folder=folder,
    )
    assert ended.code == 0, ended.err
    return Profiled(
        folder=folder,
        ended=ended,
        truth=read_profile(str(folder / "truth.toml")),
        found=read_profile(str(folder / "found.toml")),
    )


def test_a_profile_of_an_emulated_run_has_its_costs(profiled: Profiled) -> None:
    """What a machine adds makes times longer, never shorter; `nox -s gate` holds how near they are."""
    truth, found = profiled.truth, profiled.found
    assert found.collect == truth.collect
    assert found.step.median_ms > 0.9 * truth.step.median_ms
    assert found.episode.reset_ms > 0.9 * truth.episode.reset_ms
    of_minibatch = [gpu.learn_fixed_ms + 64 * gpu.learn_item_ms for gpu in (found.gpu, truth.gpu)]
    assert of_minibatch[0] > 0.9 * of_minibatch[1]
    assert found.gpu.infer_fixed_ms + 4 * found.gpu.infer_item_ms > 0.9 * truth.gpu.infer_fixed_ms
    assert found.network.latency_ms == 0.1
    assert found.network.weights_mb > 0


def test_a_profile_gives_the_rate_of_its_run(profiled: Profiled, tmp_path: Path) -> None:
    """What no span tells is counted as scheduling; where the model is slower than its run already, nothing is."""
    (run, *_) = (one for one in read_runs(profiled.folder / "rlbench-runs") if "num_minibatches" not in one.record.id)
    measured, path = measure(run, AssumedLink()), tmp_path / "found.toml"
    write_profile(measured.profile, path, {})
    point = RatePoint(system="nover", scenario=f"emulated/{path}")
    planned = Planned([point], Length(seconds=SECONDS, num_seeds=lambda _: NUM_SEEDS))
    unscheduled = planned.rates({"cpu.schedule_ms": 0.0})[point]
    slower, faster = (
        replace(run, record=run.record.model_copy(update={"figures": figures}))
        for figures in (
            run.record.figures.model_copy(update={"steps_per_s": times * unscheduled}) for times in (0.8, 1.2)
        )
    )
    assert brought_to_its_rate(measured, faster, path) is measured
    entry = brought_to_its_rate(measured, slower, path).tables["cpu"]["schedule_ms"]
    assert planned.rates({"cpu.schedule_ms": entry.value})[point] == pytest.approx(0.8 * unscheduled, rel=0.02)
    assert "so much that the model gives the run's rate" in entry.how


def test_what_it_prints(profiled: Profiled) -> None:
    """It prints what was measured and how, what was assumed, where the run lies, and a command that can be typed."""
    out = profiled.ended.out
    for text in ("gpu.infer_item_ms", "line through the medians", "assumed: ", "network.latency_ms", "mean env step: "):
        assert text in out
    assert out.endswith("next: rlbench predict --systems nover --scenario emulated/found.toml --gpus 1,8\n")
    run = re.search(r"profile: found.toml, of (\S+)", out)
    assert run is not None
    assert (profiled.folder / run[1] / "run.json").exists()


def test_of_a_run_that_was_made_before(profiled: Profiled, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--from-run` makes the same profile of the run's folder but for what the second run told, and runs nothing."""
    monkeypatch.chdir(profiled.folder)
    run = re.search(r"of (\S+)\nnext", profiled.ended.out)
    assert run is not None
    ended = call("profile", "--from-run", run[1], "--latency-ms", "0.1", "--out", "again.toml")
    assert (ended.code, ended.err) == (0, "")
    again, found = (Path(name).read_text().splitlines() for name in ("again.toml", "found.toml"))
    differ = {line.split(" = ")[0] for line, other in zip(again, found, strict=True) if line != other}
    assert {"assumed", "learn_fixed_ms", "learn_item_ms"} <= differ
    assert differ <= {"assumed", "learn_fixed_ms", "learn_item_ms", "schedule_ms"}  # which is what they leave


@pytest.mark.parametrize(
    ("scenario", "systems"),
    [
        ("emulated/open-fridge", "nover,nover:learn.num_minibatches=1"),
        ("emulated/open-fridge:learn.num_minibatches=1", "nover,nover:learn.num_minibatches=2"),
        ("emulated/open-fridge:num_envs=1:learn.num_minibatches=1", "nover"),
    ],
)
def test_a_second_run_has_other_mini_batches(scenario: str, systems: str) -> None:
    """One instead of several, else two; there is none where one environment cannot fill two."""
    asked = RunOptions(systems="nover", scenario=scenario, device="emulated", seconds=1.0)
    (cell,) = plan(complete(asked)[0])
    assert with_other_minibatches(asked, cell).systems == systems


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--out", "my.json"), ("--out my.json: must end in .toml",)),
        (("--out", "a,b.toml"), ("--out a,b.toml: must hold no comma",)),
        (("--out", "no/my.toml"), ("--out no/my.toml: no is no folder",)),
        (("--out", "there.toml"), ("--out there.toml: exists",)),
        (("--scenario", "nope"), ("unknown scenario 'nope'",)),
        (("--scenario", "pointnav,vizdoom"), ("2 cells", "one scenario")),
        (("--workload", "homogeneous,heterogeneous"), ("2 cells", "one workload")),
        (("--system", "sync,ver"), ("2 cells", "one system")),
        (("--seconds", "0"), ("--seconds 0: must be above 0",)),
        (("--device", "tpu"), ("--device tpu", "cuda, cpu, emulated")),
        (("--latency-ms", "-1"), ("--latency-ms -1: must be from 0 to 1e+06",)),
        (("--bandwidth-mb-per-s", "0"), ("--bandwidth-mb-per-s 0: must be from 0.001 to 1e+09",)),
        (("--from-run", "."), ("--from-run .: is no run folder", "run.json")),
        (("--from-run", ".", "--scenario", "pointnav"), ("--from-run .: that run was made; leave --scenario",)),
    ],
)
def test_bad_requests(
    arguments: tuple[str, ...], expected: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is wrong is said in one line before anything runs, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kinds, "visible_gpus", list)
    (tmp_path / "there.toml").touch()
    assert_refused(call("profile", *arguments), *expected)
    assert [path.name for path in tmp_path.iterdir()] == ["there.toml"]
