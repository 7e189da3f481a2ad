from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rlbench.harness.commands.predict import command
from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.prediction import STAGES, Prediction
from rlbench.harness.live.state import LIVE_FILE, read_live
from rlbench.harness.metering.window import PROTOCOLS
from rlbench.harness.plan import registry
from rlbench.harness.plan.cells import Cell
from rlbench.harness.predicting.options import PredictOptions
from rlbench.harness.predicting.planning import plan_predictions, predict_cell
from rlbench.harness.run.sweep import Sweep
from rlbench.results.records import store
from rlbench.results.records.parts import SERIES_FILE
from rlbench.results.records.schema import RunRecord
from rlbench.results.summary.scaled import scale
from rlbench.results.summary.summarise import summarise
from rlbench.scenarios.emulated.profile import PROFILES_FOLDER
from tests.harness.command import Ended, assert_refused, call, launch
from tests.harness.runs import wait_until

SMALL = ("--scenario", "emulated/open-fridge:num_envs=4:rollout_steps=16")


def predict(folder: Path, *arguments: str) -> Ended:
    """`rlbench predict`, on a small scenario; the arguments may name another."""
    return call("predict", "--out", str(folder), *SMALL, *arguments)


def records(folder: Path) -> list[RunRecord]:
    """Of the newest sweep."""
    return [run.record for run in store.read_runs(Sweep.newest(folder).folder)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicted:
    """What a command has left."""

    folder: Path
    ended: Ended


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Predicted:
    """Three systems on 1 and 8 GPUs: in step, with one learner, and asynchronous."""
    folder = tmp_path_factory.mktemp("swept")
    ended = predict(folder, "--systems", "ver,appo:rollout.batch=128,gossip", "--gpus", "1,8", "--protocol", "ddppo")
    return Predicted(folder=folder, ended=ended)


def test_those_who_watch_see_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While cells are predicted, `live.json` says how many are; in the end it is gone."""
    told = list[int]()

    def predict_late(cell: Cell) -> Prediction:
        def is_told() -> bool:
            live = read_live(Sweep.newest(tmp_path).folder)
            return live is not None and (live.phase, live.num_ended) == ("runs", len(told))

        wait_until(is_told, f"it says that {len(told)} cells have ended")
        told.append(len(told))
        return predict_cell(cell)

    monkeypatch.setattr(command, "predict_cell", predict_late)
    assert predict(tmp_path, "--systems", "sync,ver").code == 0
    assert told == [0, 1]
    assert not list(tmp_path.rglob(LIVE_FILE))


def test_every_cell_is_predicted(swept: Predicted) -> None:
    """A sweep of predictions has a finished run of each cell, and its table says that nothing was measured."""
    assert swept.ended.code == 0, swept.ended.err
    assert [(record.cell.system, record.cell.gpus, record.status) for record in records(swept.folder)] == [
        (system, gpus, "finished") for gpus in (1, 8) for system in ("ver", "appo", "gossip")
    ]
    rows = [line for line in swept.ended.out.splitlines() if "|" in line and line.split("|")[0].strip() in {"1", "8"}]
    assert len(rows) == 6
    assert "device predicted" in swept.ended.out
    assert "predicted: simulated by a model (not measured)" in swept.ended.out


def test_records_say_predicted_everywhere(swept: Predicted) -> None:
    """The device, the figures and the source of the utilisation of each record say that nothing was run."""
    for record in records(swept.folder):
        figures = record.figures
        assert record.cell.device == record.configuration["device"] == "predicted"
        assert (figures.predicted, figures.emulated, figures.time_scale) == (True, False, 1.0)
        assert figures.utilisation.source.startswith("predicted: ")
        assert figures.utilisation.value is not None
        assert 0 < figures.utilisation.value <= 1
        assert (figures.memory_bytes.value, figures.memory_bytes.source) == (None, "n/a: predicted, no process ran")
        assert figures.episode_return is None, "nothing was learned"
        assert record.machine
        assert record.command[:2] == ["rlbench", "predict"]


def test_records_have_the_figures_of_a_run(swept: Predicted) -> None:
    """Rate, window, shares of time, lag, spread of steps and counters are there, and agree with each other."""
    for record in records(swept.folder):
        figures, counters, window = record.figures, record.counters, record.figures.window
        assert counters is not None
        assert counters.conserved
        assert counters.learned is not None
        assert counters.frames == counters.env_steps >= counters.learned > 0
        assert window is not None
        assert window.protocol == "ddppo"
        if record.cell.system != "gossip":  # its ranks have iterations of their own, the slowest fewer than 10
            assert (window.steady, window.first_iteration, window.last_iteration) == (True, 5, 9)
        assert figures.steps_per_s is not None
        assert figures.steps_per_s > 0
        assert 0.99 < sum(figures.time_shares.values()) < 1.001
        assert sum(figures.env_time_shares.values()) == pytest.approx(1)
        assert figures.lag is not None
        assert (figures.lag.max > 0) == (record.cell.system != "gossip"), "ver keeps what is in flight as it learns"
        assert figures.env_step_s is not None
        assert 0.004 < figures.env_step_s.mean < 0.1


def test_what_would_help_is_asked_on_each_number_of_gpus(swept: Predicted) -> None:
    """Records say what 10 % more of each stage would give: nowhere less than nothing, or more than 10 %."""
    for record in records(swept.folder):
        gains = record.figures.gains
        assert set(gains) == set(STAGES) - ({"communication"} if record.cell.gpus == 1 else set())
        assert all(0.98 < gain < 1.11 for gain in gains.values()), gains


def test_the_verdict_follows_from_what_would_help(tmp_path: Path) -> None:
    """One learner for 64 GPUs: more of it helps, whatever takes the most of the ranks' time."""
    options = ("--systems", "appo", "--gpus", "64", "--workload", "heterogeneous", "--out", str(tmp_path))
    said = call("predict", *options)
    assert said.code == 0
    (record,) = records(tmp_path)
    assert max(record.figures.gains, key=record.figures.gains.__getitem__) == "learner"
    (cell,) = summarise(store.read_runs(Sweep.newest(tmp_path).folder)).cells
    assert cell.bottleneck is not None
    assert cell.bottleneck.sentence.startswith("bound by the learner: 10% faster, it would give ")


def test_the_series_is_that_of_a_run(swept: Predicted) -> None:
    """A row for each iteration of each rank, whose samples are those of the record, in the columns of a real run."""
    for run in store.read_runs(Sweep.newest(swept.folder).folder):
        series = pd.read_parquet(run.path / SERIES_FILE)
        assert run.record.counters is not None
        assert series["learned"].sum() == run.record.counters.learned
        assert set(series["rank"]) == set(range(run.record.cell.gpus))
        assert {"begin_s", "end_s", "reused", "gpu_busy_s", "span/learn", "in_step", "lost"} <= set(series.columns)
        assert ("sampler/infer" in series.columns) == (run.record.cell.system == "appo")
        assert bool(series["in_step"].all()) == (run.record.cell.system != "gossip")
        assert not series["lost"].any()


def test_results_read_them(swept: Predicted) -> None:
    """`rlbench results` prints predictions as a table, JSON or CSV, like runs."""
    table = call("results", str(swept.folder))
    assert "predicted: simulated by a model (not measured)" in table.out
    listed = json.loads(call("results", str(swept.folder), "--json").out)
    assert [run["figures"]["predicted"] for run in listed] == [True] * 6
    assert call("results", str(swept.folder), "--csv").out.count("predicted") >= 6


def test_scaling_is_worked_out(swept: Predicted) -> None:
    """Systems on 8 GPUs are held against themselves on 1, with an interval."""
    scaled = {(run.record.cell.system, run.record.cell.gpus): run.record.figures for run in all_scaled(swept.folder)}
    for system in ("ver", "appo"):
        many, one = scaled[system, 8], scaled[system, 1]
        assert (many.scaling_base_gpus, one.scaling_factor) == (1, 1)
        assert many.scaling_factor is not None
        assert many.scaling_factor_interval is not None
        low, high = many.scaling_factor_interval
        assert 1 < low < many.scaling_factor < high


def all_scaled(folder: Path) -> list[store.StoredRun]:
    """The runs of a folder, with scaling."""
    return scale(store.read_runs(Sweep.newest(folder).folder))


def test_the_same_command_predicts_the_same(swept: Predicted, tmp_path: Path) -> None:
    """Another process leaves the same series and figures, to the bit."""
    arguments = ("--systems", "ver", "--gpus", "8", "--protocol", "ddppo")
    ended = launch("predict", "--out", "runs", *SMALL, *arguments, folder=tmp_path)
    assert ended.code == 0, ended.err
    (again,) = store.read_runs(Sweep.newest(tmp_path / "runs").folder)
    (first,) = (
        run
        for run in store.read_runs(Sweep.newest(swept.folder).folder)
        if (run.record.cell.system, run.record.cell.gpus) == ("ver", 8)
    )
    assert again.record.figures == first.record.figures
    assert again.record.cell == first.record.cell
    assert pd.read_parquet(again.path / SERIES_FILE).equals(pd.read_parquet(first.path / SERIES_FILE))


@pytest.mark.parametrize(
    ("arguments", "holds"),
    [
        (("--iterations", "3"), lambda series: series["iteration"].max() == 2),
        (("--env-steps", "200"), lambda series: 200 <= series["learned"].sum() < 200 + 2 * 64),
        (("--seconds", "2.5"), lambda series: 2.5 <= series["end_s"].max() < 2.5 + series["end_s"].min()),
        (("--iterations", "5", "--seconds", "1e-3"), lambda series: series["iteration"].max() == 0),
        (("--protocol", "ddppo"), lambda series: series["iteration"].max() == 9),
    ],
)
def test_limits_are_kept(arguments: tuple[str, ...], holds: Any, tmp_path: Path) -> None:
    """A prediction ends with the first iteration that spends a limit, or after as many as the protocol wants."""
    assert predict(tmp_path, "--systems", "sync", "--gpus", "2", *arguments).code == 0
    (run,) = store.read_runs(Sweep.newest(tmp_path).folder)
    assert holds(pd.read_parquet(run.path / SERIES_FILE))


def test_a_time_scale_changes_nothing(tmp_path: Path) -> None:
    """Predictions are in the profile's seconds, whatever the scale at which it would be emulated."""
    ends = []
    for time_scale in ("0.1", "1.0"):
        scenario = f"emulated/open-fridge:num_envs=4:rollout_steps=16:time_scale={time_scale}"
        assert predict(tmp_path, "--systems", "sync", "--iterations", "3", "--scenario", scenario).code == 0
        (run,) = store.read_runs(Sweep.newest(tmp_path).folder)
        ends.append(pd.read_parquet(run.path / SERIES_FILE)["end_s"].tolist())
    assert ends[0] == ends[1]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), ("--systems: name at least one", "rlbench list")),
        (("--systems", "nope"), ("unknown system 'nope'", "known: ", "ver")),
        (
            ("--systems", "ver", "--scenario", "pointnav"),
            ("ver on pointnav: its times are not known", "rlbench profile"),
        ),
        (("--systems", "ver", "--scenario", "emulated/nope"), ("emulated/nope", "known: open-fridge", ".toml")),
        (("--systems", "ver", "--gpus", "0"), ("--gpus 0: must be from 1",)),
        (("--systems", "ver", "--gpus", "many"), ("--gpus many: must be whole numbers",)),
        (("--systems", "ver", "--protocol", "nope"), ("--protocol nope: unknown; known: ", *PROTOCOLS)),
        (("--systems", "ver", "--workload", "nope"), ("--workload nope", "homogeneous, heterogeneous")),
        (("--systems", "ver", "--until", "success>=0.9"), ("No such option: --until", "`rlbench predict --help`")),
        (("--systems", "ver", "--device", "cuda"), ("No such option: --device",)),
        (("--systems", "ver", "--seconds", "nan"), ("--seconds nan: must be above 0",)),
        (("--systems", "ver", "--iterations", "0"), ("--iterations 0: must be above 0",)),
        (("--systems", "ver:overlap=oneahead:preempt=never,ver:preempt.p=1"), ("ver:preempt.p=1: unknown field",)),
        (
            ("--systems", "ver,nover:overlap=oneahead"),
            ("nover on emulated/open-fridge", "the model has overlap=oneahead with preempt=never alone"),
        ),
        (
            ("--systems", "sync:rollout=trajectories"),
            ("sync on emulated/open-fridge", "rollout=trajectories with overlap=continuous alone"),
        ),
    ],
)
def test_what_cannot_be_predicted_is_one_line(
    arguments: tuple[str, ...], expected: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each ends with one line on stderr that says what to do and exit code 2, before anything is predicted or left."""
    monkeypatch.chdir(tmp_path)
    assert_refused(call("predict", *arguments), *expected)
    assert list(tmp_path.iterdir()) == []


def test_a_bad_profile_is_one_line(tmp_path: Path) -> None:
    """A profile that breaks a rule is refused with its file, line, key and rule."""
    text = (PROFILES_FOLDER / "open-fridge.toml").read_text(encoding="utf-8")
    (tmp_path / "mine.toml").write_text(text.replace("latency_ms = ", "latency_ms = -1.0 #"), encoding="utf-8")
    ended = launch("predict", "--systems", "ver", "--scenario", "emulated/mine.toml", folder=tmp_path)
    assert_refused(ended, "mine.toml:", "network.latency_ms: must be greater than or equal to 0, not -1.0")


def test_all_leaves_out_what_has_no_model(tmp_path: Path) -> None:
    """`all` predicts what the model covers, and says in a line what it does not, and why."""
    ended = predict(tmp_path, "--systems", "all:overlap=oneahead", "--iterations", "3")
    assert ended.code == 0
    lines = [line for line in ended.err.splitlines() if line.startswith("skipped ")]
    assert "skipped ver on emulated/open-fridge: the model has overlap=oneahead with preempt=never alone" in lines
    skipped = {line.split()[1] for line in lines}
    assert skipped == {"appo", "ddppo", "impala", "nover", "ver"}
    predicted = {record.cell.system for record in records(tmp_path)}
    assert predicted == set(registry.names(registry.SYSTEMS)) - skipped


class Modelless:
    """A system of somebody else's, that can be run and not predicted."""

    name = "theirs"
    about = "has no model"


MODELLESS = Modelless()


def test_a_system_without_a_model_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's system need have no model: `all` leaves it out, and by its name it is refused."""
    theirs = EntryPoint("theirs", f"{__name__}:MODELLESS", registry.SYSTEMS)

    def with_theirs(group: str) -> list[EntryPoint]:
        return [*entry_points(group=group), *([theirs] if group == registry.SYSTEMS else [])]

    monkeypatch.setattr(registry, "entry_points", with_theirs)
    ended = predict(tmp_path / "all", "--systems", "all", "--iterations", "3")
    assert "skipped theirs on emulated/open-fridge: it has no model; `rlbench run` measures it" in ended.err
    assert "theirs" not in {record.cell.system for record in records(tmp_path / "all")}
    assert_refused(predict(tmp_path / "one", "--systems", "sync,theirs"), "theirs on emulated/open-fridge: it has no")
    assert not (tmp_path / "one").exists()


def test_the_default_is_a_few_rollouts_of_every_rank() -> None:
    """Without limits every rank has some rollouts of its own, where one learner learns for all of them too."""
    cells, skipped = plan_predictions(PredictOptions(systems="all", gpus="1,128", scenario=SMALL[1]))
    assert skipped == []
    for cell in cells:
        assert cell.limits.iterations is None
        assert cell.limits.env_steps is not None
        assert cell.limits.env_steps % (64 * cell.gpus) == 0
        assert 3 <= cell.limits.env_steps / (64 * cell.gpus) <= 10


def test_schedules_do_not_matter() -> None:
    """A system whose settings follow the budget is predicted without one: it learns nothing."""
    ((cell,), _), ((plain,), _) = (
        plan_predictions(PredictOptions(systems=f"ver{settings}", scenario=SMALL[1]))
        for settings in (":learn.schedule=cosine:learn.entropy_schedule=linear", "")
    )
    assert pd.DataFrame(predict_cell(cell).rows).equals(pd.DataFrame(predict_cell(plain).rows))


def test_thousands_of_ranks_are_no_processes() -> None:
    """A prediction may have more ranks and environments than a machine could have processes."""
    (cell,), _ = plan_predictions(PredictOptions(systems="sync", gpus="2048", iterations=1))
    assert (cell.gpus, cell.device) == (2048, "predicted")
    with pytest.raises(ValueError, match=r"processes must be at most"):
        replace(cell, device="emulated").load()


def test_a_disk_that_is_full_leaves_no_half_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run folder that cannot be written is one line, and what was there of it is gone."""

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "write_run", fail)
    ended = predict(tmp_path, "--systems", "sync", "--iterations", "2")
    assert ended.code == 2
    assert "cannot be written: No space left on device; earlier runs are kept" in ended.err
    (sweep,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert [path.name for path in sweep.iterdir() if path.is_dir()] == []


def test_predictions_and_limits_hash_apart() -> None:
    """A prediction is another cell than the run of the same, and than one with other limits."""
    (cell,), _ = plan_predictions(PredictOptions(systems="sync", scenario=SMALL[1], iterations=3))
    others = replace(cell, device="emulated"), replace(cell, limits=Limits(iterations=4))
    assert len({one.hash() for one in (cell, *others)}) == 3
    assert predict_cell(cell).rows[-1]["iteration"] == 2
