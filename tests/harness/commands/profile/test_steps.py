from __future__ import annotations

import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlbench.harness.commands.profile.cores import Cores, CpuShares, cores_of, seconds_of_work, with_work
from rlbench.harness.commands.profile.gpu import AssumedLink
from rlbench.harness.commands.profile.making import mean_step_ms, measure, to_toml, write_profile
from rlbench.harness.commands.profile.modes import find_modes
from rlbench.harness.commands.profile.steps import EnvSteps, read_steps, step_tables
from rlbench.results.records.schema import Counters
from rlbench.results.records.store import StoredRun
from rlbench.scenarios.emulated.profile import Profile, read_profile
from rlbench.scenarios.emulated.times import BlocksOfTimes
from tests.harness.run.synthetic_run import LEARN_S, make_series, make_spans, record_of, write_run

OPEN_FRIDGE = read_profile("open-fridge")
ENOUGH = Cores(num=np.inf, num_learning=0, how="")


def with_(**changes: dict[str, float]) -> Profile:
    """`open-fridge` with fields of some of its tables changed."""
    tables = {name: getattr(OPEN_FRIDGE, name).model_copy(update=fields) for name, fields in changes.items()}
    return OPEN_FRIDGE.model_copy(update=tables)


def drawn_steps(profile: Profile, workload: str, num_envs: int = 128) -> EnvSteps:
    """2,048 steps of each environment, as `read_steps` would give them."""
    times = BlocksOfTimes(profile, workload, range(num_envs))
    blocks = [times.draw(range(num_envs)) for _ in range(8)]
    seconds, ends = (np.concatenate(parts, axis=1) for parts in zip(*blocks, strict=True))
    env = np.repeat(np.arange(num_envs), seconds.shape[1])
    before = np.cumsum(np.pad(ends, ((0, 0), (1, 0)))[:, :-1], axis=1)
    episode = before + np.arange(num_envs)[:, None] * seconds.shape[1]
    return EnvSteps(seconds=seconds.ravel(), env=env, episode=episode.ravel(), reset_s=np.full(3, 0.25))


def values_of(steps: EnvSteps, workload: str = "homogeneous", **counts: int) -> dict[str, dict[str, float]]:
    """The tables of steps without their comments."""
    tables = step_tables(
        steps, Counters(env_steps=counts.get("env_steps", 600), episodes=counts.get("episodes", 3)), workload
    )
    return {name: {key: entry.value for key, entry in table.items()} for name, table in tables.items()}


@pytest.mark.parametrize("workload", ["homogeneous", "heterogeneous"])
def test_times_of_steps_are_recovered(workload: str) -> None:
    """From the draws of 128 environments come the parameters they were drawn from, each within 6 %."""
    found = values_of(drawn_steps(OPEN_FRIDGE, workload), workload)
    scenes = np.log(BlocksOfTimes(OPEN_FRIDGE, workload, range(128)).scene_factors)
    medians = {"step": found["step"]["median_ms"], "collision": found["collision"]["median_ms"]}
    for name, median_ms in medians.items():
        drawn = getattr(OPEN_FRIDGE, name).median_ms * np.exp(scenes.mean())
        assert median_ms == pytest.approx(drawn, rel=0.06), name
    for name, key in product(found, ("sigma", "share", "mean_stay_steps")):
        if key in found[name] and name != "heterogeneous":
            assert found[name][key] == pytest.approx(getattr(getattr(OPEN_FRIDGE, name), key), rel=0.06), (name, key)
    assert found["heterogeneous"]["sigma"] == pytest.approx(scenes.std(), abs=0.03)


def test_other_profiles_are_recovered() -> None:
    """So are a slow mode that is near and frequent, and episodes that hardly differ."""
    profile = with_(
        step={"sigma": 0.1},
        collision={"median_ms": 8.8, "share": 0.3, "mean_stay_steps": 2.0},
        episode={"sigma": 0.05},
    )
    found = values_of(drawn_steps(profile, "homogeneous"))
    assert found["collision"]["median_ms"] == pytest.approx(8.8, rel=0.05)
    assert found["collision"]["share"] == pytest.approx(0.3, rel=0.05)
    assert found["collision"]["mean_stay_steps"] == pytest.approx(2.0, rel=0.05)
    assert found["step"]["sigma"] == pytest.approx(0.1, rel=0.05)
    assert found["episode"]["sigma"] == pytest.approx(0.05, rel=0.2)


def test_steps_without_a_slow_mode_have_none() -> None:
    """One lognormal mode, however wide, is not cut in two: the share is 0, the median that of all steps."""
    for sigma in (0.0, 0.2, 1.0):
        profile = with_(step={"sigma": sigma}, collision={"share": 0.0}, episode={"sigma": 0.3})
        found = values_of(drawn_steps(profile, "homogeneous", num_envs=32))
        assert found["collision"] == {
            "median_ms": found["step"]["median_ms"],
            "share": 0.0,
            "mean_stay_steps": 1.0,
        }
        assert found["step"]["median_ms"] == pytest.approx(profile.step.median_ms, rel=0.1)
        assert found["step"]["sigma"] == pytest.approx(sigma, rel=0.05, abs=1e-3)


def test_a_tail_is_no_mode() -> None:
    """Times with an exponential tail are one mode; two exact times are two."""
    draw = np.random.default_rng(0)
    assert find_modes(np.log(draw.gamma(2, size=20_000))) is None
    assert find_modes(np.log(1 + draw.exponential(size=20_000))) is None
    two = find_modes(np.log(draw.choice([1.0, 3.0], p=[0.9, 0.1], size=20_000)))
    assert two is not None
    assert two.share == pytest.approx(0.1, rel=0.1)
    assert two.slow - two.fast == pytest.approx(np.log(3))


def test_little_is_asked_of_a_short_run() -> None:
    """One environment in its first episode gives steps, no spread, and says what is assumed."""
    steps = EnvSteps(
        seconds=np.full(5, 0.01), env=np.zeros(5, np.intp), episode=np.zeros(5, np.intp), reset_s=np.empty(0)
    )
    tables = step_tables(steps, Counters(env_steps=5), "homogeneous")
    assert tables["step"]["median_ms"].value == pytest.approx(10)
    assert tables["step"]["sigma"].value == 0
    assert tables["episode"]["mean_steps"].value == 5
    for name, key in (("episode", "mean_steps"), ("episode", "reset_ms"), ("heterogeneous", "sigma")):
        assert tables[name][key].how.startswith("assumed: "), key


def test_episodes_and_resets() -> None:
    """Episodes are as long as the counters say; a reset takes the mean, without the first of each environment."""
    profile = with_(episode={"mean_steps": 50.0, "reset_ms": 30.0})
    spans = make_spans(profile, num_steps=256)
    found = step_tables(read_steps(with_work(spans, ENOUGH)), Counters(env_steps=1000, episodes=8), "homogeneous")
    assert found["episode"]["mean_steps"].value == 125
    assert found["episode"]["reset_ms"].value == pytest.approx(30)


def test_steps_are_taken_from_when_all_environments_are_known() -> None:
    """The meter keeps the latest spans of each environment: what was before the shortest memory counts for none."""
    spans = make_spans(OPEN_FRIDGE, num_envs=2, num_steps=64)
    forgotten = (spans["environment"] == 1) & (spans["begin_s"] < spans["end_s"].max() / 2)
    since_s = spans["begin_s"][(spans["environment"] == 1) & ~forgotten].min()
    steps = read_steps(with_work(spans[~forgotten], ENOUGH))
    kept = spans[(spans["kind"] == "simulate") & (spans["begin_s"] >= since_s)]
    assert np.bincount(steps.env).tolist() == [int((kept["environment"] == env).sum()) for env in (0, 1)]


def test_waiting_for_a_core_is_no_work() -> None:
    """Spans that outnumber the cores share them; work that was done is that of the cores that were there."""
    begin, end = np.array([0.0, 0.0, 0.0, 10.0]), np.array([6.0, 6.0, 6.0, 11.0])
    one_each = np.ones(4)
    assert seconds_of_work(begin, end, one_each, 2).tolist() == pytest.approx([4, 4, 4, 1])
    assert seconds_of_work(begin, end, np.array([2.0, 1, 1, 1]), 2).tolist() == pytest.approx([3, 3, 3, 1])
    assert seconds_of_work(begin, end, one_each, np.inf).tolist() == [6, 6, 6, 1]


def test_the_work_of_a_rank_competes_where_it_has_no_gpu() -> None:
    """Its inference and learning share the cores with its environments; waiting wants none, and a GPU needs none."""
    spans = pd.DataFrame(
        [
            (0, 0, 0.0, 6.0, "simulate"),
            (0, 1, 0.0, 6.0, "simulate"),
            (0, -1, 0.0, 6.0, "infer"),
            (0, -1, 6.0, 10.0, "learn"),
            (0, 0, 6.0, 10.0, "simulate"),
            (0, -1, 10.0, 12.0, "simulate"),
            (0, 1, 10.0, 12.0, "simulate"),
            (1, 0, 0.0, 6.0, "simulate"),
        ],
        columns=["rank", "environment", "begin_s", "end_s", "kind"],
    )
    shared = with_work(spans, Cores(num=2, num_learning=2, how=""))["work_s"]
    assert shared.tolist() == pytest.approx([4, 4, 4, 8 / 3, 8 / 3, 2, 2, 6])
    with_gpu = with_work(spans, Cores(num=1, num_learning=0, how=""))["work_s"]
    assert with_gpu.tolist() == pytest.approx([3, 3, 6, 4, 4, 2, 2, 6])


def test_cpu_times_say_what_was_work() -> None:
    """Steps had at least equal shares of the cores; a rank's own spans what its thread had, unless several learn."""
    rows = [(0, env, 0.0, 6.0, "simulate") for env in (0, 1)]
    rows += [(0, 0, 6.0, 7.0, "reset"), (0, -1, 0.0, 6.0, "schedule"), (0, -1, 8.0, 10.0, "learn")]
    spans = pd.DataFrame(rows, columns=["rank", "environment", "begin_s", "end_s", "kind"])
    one = Cores(num=1, num_learning=1, how="")
    told = CpuShares(ranks={"schedule": 0.25, "learn": 0.5}, env=0.9)
    assert with_work(spans, one, told)["work_s"].tolist() == pytest.approx([5.4, 5.4, 0.9, 1.5, 1.0])
    in_another_process = CpuShares(ranks={}, env=0.01)
    assert with_work(spans, one, in_another_process)["work_s"].tolist() == pytest.approx([2, 2, 1, 2, 2])
    two = Cores(num=2, num_learning=2, how="")
    assert with_work(spans, two, told)["work_s"].tolist()[3:] == pytest.approx([1.5, 2.0])
    with_gpu = Cores(num=1, num_learning=0, how="")
    assert with_work(spans, with_gpu, told)["work_s"].tolist()[3:] == pytest.approx([1.5, 2.0])


def test_cores_of_a_run() -> None:
    """A real run has its share of the machine's usable cores; an emulated one those of its profile."""
    spans = make_spans(OPEN_FRIDGE, num_envs=2, num_steps=8)
    assert cores_of(record_of(OPEN_FRIDGE, spans)).per_gpu == OPEN_FRIDGE.cpu.cores_per_gpu
    real: dict[str, Any] = {"configuration": {}, "machine": {"num_affine_cores": 16, "cpu_quota_cores": 12.0}}
    found = cores_of(record_of(OPEN_FRIDGE, spans, **real, cell={"device": "cpu", "gpus": 4}))
    assert (found.num, found.per_gpu) == (3.0, 3)
    assert found.num_learning == 3
    assert cores_of(record_of(OPEN_FRIDGE, spans, configuration={})).per_gpu == 0


def test_a_whole_profile_is_recovered(tmp_path: Path) -> None:
    """From a run folder comes a profile that loads, and that has the costs of inference and learning within 3 %."""
    spans = make_spans(OPEN_FRIDGE)
    (tmp_path / "policy.pt").write_bytes(b"x" * 3_000_000)
    record = record_of(OPEN_FRIDGE, spans)
    write_run(tmp_path, spans, make_series(num_learned=4000, num_reused=8000))
    measured = measure(StoredRun(path=tmp_path, record=record), AssumedLink(latency_ms=0.2, bandwidth_mb_per_s=1250.0))
    of_another_link = measure(StoredRun(path=tmp_path, record=record), AssumedLink()).profile
    assert measured.profile == {**of_another_link, "network": measured.profile["network"]}
    path = tmp_path / "my.toml"
    write_profile(measured.profile, path, measured.comments)
    profile = read_profile(str(path))
    assert profile.gpu.infer_fixed_ms == pytest.approx(OPEN_FRIDGE.gpu.infer_fixed_ms, rel=0.03)
    assert profile.gpu.infer_item_ms == pytest.approx(OPEN_FRIDGE.gpu.infer_item_ms, rel=0.03)
    assert profile.gpu.learn_item_ms == pytest.approx(2e3 * LEARN_S / 12_000)
    assert profile.network.model_dump() == {
        "synchronize_ms": 0.0,
        "synchronize_doubling_ms": 0.0,
        "latency_ms": 0.2,
        "bandwidth_mb_per_s": 1250.0,
        "weights_mb": 3.0,
    }
    assert (profile.collect.num_envs, profile.collect.rollout_steps) == (16, 128)
    assert profile.cpu.cores_per_gpu == 10
    assert measured.mean_step_ms == pytest.approx(mean_step_ms(measured.profile, "homogeneous"), rel=0.1)


def test_every_value_says_where_it_comes_from(tmp_path: Path) -> None:
    """The file has every key of a profile and no other, each with a comment; text in it is quoted."""
    spans = make_spans(OPEN_FRIDGE, num_steps=64)
    write_run(tmp_path, spans, make_series(num_learned=100, num_reused=0))
    measured = measure(StoredRun(path=tmp_path, record=record_of(OPEN_FRIDGE, spans)), AssumedLink())
    tables = {**measured.profile, "about": 'a "quoted" \\ line\nand another'}
    text = to_toml(tables, measured.comments)
    read = tomllib.loads(text)
    assert {name: set(table) for name, table in read.items() if name not in {"about", "assumed"}} == {
        name: set(getattr(OPEN_FRIDGE, name).model_dump())
        for name in Profile.model_fields
        if name not in {"about", "assumed", "batch"}  # a table of runs with environments in batches
    }
    assert read["assumed"] == [key for key, how in measured.comments.items() if "assumed" in how]
    assert {"network.latency_ms", "gpu.render_while_learning_factor"} <= set(read["assumed"])
    assert read["about"] == tables["about"]
    assert [line for line in text.splitlines()[2:] if " = " in line and "  # " not in line] == []
    assert to_toml({"about": "x", "gpu": {"a": 1, "b": 2.0, "c": 0.123456789}}, {}) == (
        'about = "x"\n\n[gpu]\na = 1\nb = 2.0\nc = 0.12346\n'
    )


def test_the_network_of_several_ranks(tmp_path: Path) -> None:
    """With several ranks, an iteration's communication is that of the rank that came last and waited for no other."""
    spans = make_spans(OPEN_FRIDGE, num_steps=64)
    series = make_series(num_learned=100, num_reused=0, num_ranks=2)
    series["span/communicate"] += 0.1
    record = record_of(OPEN_FRIDGE, spans, cell={"gpus": 2, "device": "cpu"})
    run = StoredRun(path=write_run(tmp_path, spans, series), record=record)
    network = measure(run, AssumedLink()).tables["network"]
    assert network["synchronize_ms"].value == pytest.approx(100)
    assert network["weights_mb"].how.startswith("assumed: ")


def test_another_size_of_mini_batches_tells_what_one_costs(tmp_path: Path) -> None:
    """Two epochs of 2,000 samples that take 3 s in 4 mini-batches and 2.4 s in 2 cost 300 ms for each mini-batch."""
    spans, runs = make_spans(OPEN_FRIDGE, num_steps=64), []
    for number, (count, seconds) in enumerate(((2, 3.0), (1, 2.4))):
        (tmp_path / str(number)).mkdir()
        series = make_series(num_learned=2000, num_reused=2000).assign(**{"span/learn": seconds})
        record = record_of(OPEN_FRIDGE, spans)
        record.configuration["scenario"]["learn"]["num_minibatches"] = count
        runs.append(StoredRun(path=write_run(tmp_path / str(number), spans, series), record=record))
    tables = measure(runs[0], AssumedLink(), runs[1]).tables
    assert tables["gpu"]["learn_fixed_ms"].value == pytest.approx(300)
    assert tables["gpu"]["learn_item_ms"].value == pytest.approx((3000 - 4 * 300) / 2000)
    assert tables["gpu"]["learn_fixed_ms"].how == "line through learning in mini-batches of 500 and of 1,000 samples"
    assert [tables["learn"][key].value for key in ("epochs", "num_minibatches")] == [2, 2]
    alone = measure(runs[0], AssumedLink()).tables["gpu"]
    assert alone["learn_fixed_ms"].value == 0.0
    assert alone["learn_item_ms"].value == pytest.approx(1.5)


def no_kind(spans: pd.DataFrame, kind: str) -> pd.DataFrame:
    """The spans without those of a kind."""
    return spans[spans["kind"] != kind]


def test_runs_that_lack_something_are_refused(tmp_path: Path) -> None:
    """A run that failed, or that has no spans, inferences, steps or learned samples, is named with what it lacks."""
    spans = make_spans(OPEN_FRIDGE, num_steps=64)
    series, empty = make_series(num_learned=100, num_reused=0), make_series(num_learned=0, num_reused=0)
    empty[["learned", "reused"]] = 0
    inferences = spans[spans["kind"] == "infer"]
    seldom = pd.concat([no_kind(spans, "infer"), inferences[::50]])
    record = record_of(OPEN_FRIDGE, spans)
    cases = {
        "the run has no spans.parquet": (None, series, record),
        "the run has no series.parquet": (spans, None, record),
        "the run has no infer spans": (no_kind(spans, "infer"), series, record),
        "the run has no simulate spans": (no_kind(spans, "simulate"), series, record),
        "follow no inference of their rank": (seldom, series, record),
        "the run has no learned samples": (spans, empty, record),
        "has no window of iterations": (spans, series, record_of(OPEN_FRIDGE, spans, figures={"window": None})),
        "the run is predicted, a profile needs a measured one": (
            *(spans, series),
            record_of(OPEN_FRIDGE, spans, cell={"device": "predicted"}),
        ),
        "has no scenario.num_envs": (spans, series, record_of(OPEN_FRIDGE, spans, configuration={})),
        "the run is failed, a profile needs a finished one: a rank died": (
            *(spans, series),
            record_of(OPEN_FRIDGE, spans, status="failed", reason="a rank died"),
        ),
    }
    for number, (expected, (some_spans, some_series, some_record)) in enumerate(cases.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_run(folder, some_spans, some_series)
        with pytest.raises(ValueError, match=expected) as raised:
            measure(StoredRun(path=folder, record=some_record), AssumedLink())
        assert str(raised.value).startswith(f"{folder}: the run ")
        assert "\n" not in str(raised.value)
