from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from rlbench.harness.commands.reproduce import command
from rlbench.harness.commands.reproduce.claims import AgainstPrediction, EachWithin, MeanErrorWithin
from rlbench.harness.commands.reproduce.measuring import commands, measured_rates
from rlbench.harness.commands.reproduce.papers import TABLES
from rlbench.harness.commands.reproduce.predicting import predict_rates
from rlbench.harness.commands.reproduce.table import ClaimOutcome, Fits, PaperTable, fill, judge
from rlbench.harness.predicting.options import PredictOptions
from rlbench.harness.predicting.planning import plan_predictions
from rlbench.harness.predicting.points import Length, Planned, RatePoint, plan_point
from rlbench.harness.run.record import cell_record
from rlbench.reports.figures.format import number
from rlbench.reports.terminal.table import make_console
from rlbench.results.records.schema import Figures, RunRecord
from rlbench.results.records.store import read_runs
from rlbench.scenarios.emulated.profile import PROFILES_FOLDER
from tests.harness.command import QUICK, assert_refused, call, launch
from tests.harness.commands.reproduce.tiny_table import make_row, make_table
from tests.results.made_records import make_record, write_run_folder

SMALL = "emulated/open-fridge:num_envs=2:rollout_steps=8"
SHIPPED = (PROFILES_FOLDER / "open-fridge.toml").read_text(encoding="utf-8")


def test_figures_are_rates_speed_ups_or_frames() -> None:
    """A row's figure is its point's rate, over that of its base and times frames if it has them; else there is none."""
    one, many = RatePoint(system="sync", scenario="s"), RatePoint(system="sync", scenario="s", gpus=8)
    table = make_table(
        make_row("rate", 100.0, point=many),
        make_row("speed-up", 7.3, point=many, base=one),
        make_row("frames", 400.0, point=one, frames_per_env_step=4),
        make_row("unknown", 5.0, point=None),
    )
    rows = fill(table, {one: 110.0, many: 770.0}, {many: 700.0})
    assert [row.predicted for row in rows.values()] == [770.0, 7.0, 440.0, None]
    assert [row.measured for row in rows.values()] == [700.0, None, None, None]
    assert rows["frames"].predicted_error == pytest.approx(0.1)
    assert (rows["frames"].measured_error, rows["unknown"].predicted_error) == (None, None)
    assert rows["rate"].measured_error == pytest.approx(6.0)
    assert table.points == [many, one]


def test_a_table_prints_its_figures_and_verdicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0 when all checks of the predictions hold, 1 when one is missed; a line says which."""
    rows = (
        make_row("met", 100.0),
        make_row("far", 100.0, fit="held out"),
        make_row("theirs", 50.0, point=None, fit="-"),
        make_row("unstated", None),
    )
    checks = (EachWithin(names=("met", "far"), tolerance=0.08), MeanErrorWithin(names=("far",), what="far"))
    rates = dict(zip([row.point for row in rows], (104.0, 80.0, 0.0, 1234.0), strict=True))
    monkeypatch.setattr(command, "predict_rates", lambda *_: rates)
    table = make_table(*rows, checks=checks)
    monkeypatch.setattr(command, "measured_rates", lambda *_: {rows[0].point: 99.0})
    monkeypatch.setattr(command, "TABLES", {"tiny": lambda: table})
    assert command.reproduce("tiny", tmp_path) == 1
    out = capsys.readouterr().out
    shown = [[cell.strip() for cell in line.split("|")] for line in out.splitlines() if line.count("|") == 6]
    assert shown == [
        ["row", "published", "predicted", "error", "measured", "error", "profile"],
        ["met", "100", "104", "+4.0%", "99.0", "-1.0%", "fitted"],
        ["far", "100", "80.0", "-20.0%", "-", "-", "held out"],
        ["theirs", "50.0", "no model", "-", "-", "-", "-"],
        ["unstated", "-", "1,234", "-", "-", "-", "fitted"],
    ]
    assert "\npublished: VER, Section 3, Fig. 4A" in out
    assert "\npredicted: by a model of the systems, nothing was run; means of 2 seeds; protocol steady\n" in out
    assert "\nok      met, predicted against published: +4.0%; bound: within 8%\n" in out
    assert "\nmissed  far, predicted against published: -20.0%; bound: within 8%\n" in out
    assert "\n-       mean absolute error of the predictions, far: 20.0%; bound: none\n" in out
    assert "\nfitted: mean absolute error of the predictions 4.0%, 1 figures\n" in out
    assert "\nheld out: mean absolute error of the predictions 20.0%, 1 figures\n" in out
    assert "\ntiny: 1 of 2 checks hold\n" in out
    passing = replace(table, checks=checks[1:])
    monkeypatch.setattr(command, "TABLES", {"tiny": lambda: passing, "other": lambda: table})
    assert command.reproduce("tiny", tmp_path) == 0
    assert command.reproduce("all", tmp_path) == 1


@pytest.mark.parametrize("name", TABLES)
def test_every_table_can_be_made(name: str, tmp_path: Path) -> None:
    """All points of a table can be planned, its checks know its rows, and the commands that it prints are accepted."""
    table = TABLES[name]()
    assert table.name == name
    assert {row.fit for row in table.rows} <= {"fitted", "held out", "-"}
    for point in table.points:
        if point.system is not None:
            cells = plan_point(point, table.length)
            assert [cell.seed for cell in cells] == list(range(table.length.num_seeds(point.gpus)))
            assert {cell.device for cell in cells} == {"predicted"}
    stand_in = dict.fromkeys(table.points, 100.0)
    assert len(judge(table, fill(table, stand_in, {}))) >= len(table.checks)
    printed = list(commands(table, table.points, tmp_path / "runs"))
    assert printed
    for line in printed:
        program, *arguments = shlex.split(line)
        ended = call(*arguments, "--dry-run")
        assert (program, ended.code, ended.err) == ("rlbench", 0, "")


def test_tables_hold_the_published_figures() -> None:
    """Rows have the papers' figures, say whether a profile was fitted to them, and are what the papers ran."""
    rows = {row.name: row for make in TABLES.values() for row in make().rows}
    ver = rows["mean of ver on 8 GPUs"]
    assert (ver.published, ver.fit) == (2861.0, "fitted")
    assert ver.point == RatePoint(system="ver", gpus=8, scenario="emulated/open-fridge")
    most = rows["max of ver on 8 GPUs"]
    assert (most.published, most.fit) == (3829.0, "held out")
    assert most.point == RatePoint(system="ver", gpus=8, scenario="emulated/open-fridge-steady")
    assert [name for name in rows if name.startswith(("mean of", "max of"))][::5] == [
        "mean of ddppo on 1 GPU",
        "mean of nover on 2 GPUs",
        "mean of ver on 4 GPUs",
        "mean of appo on 8 GPUs",
        "max of nover on 1 GPU",
        "max of ver on 2 GPUs",
        "max of appo on 4 GPUs",
    ]
    speed_up = rows["homogeneous p=0.6 on 128 GPUs"]
    assert speed_up.published == 107.0
    assert (speed_up.point, speed_up.base) == tuple(
        RatePoint(system="ddppo:preempt.p=0.6", gpus=gpus, scenario="emulated/gibson") for gpus in (128, 1)
    )
    assert (rows["ver on objectnav"].published, rows["pure_simulation on vizdoom"].published) == (2019.0, 322907.0)
    doom = rows["sample_factory_appo on vizdoom, system2, 1728 envs"]
    assert (doom.published, doom.frames_per_env_step, doom.fit) == (146551.0, 4, "fitted")
    assert rows["sample_factory_appo on vizdoom"].point == doom.point
    most = rows["sample_factory_appo on dmlab"]
    assert (most.published, most.fit) == (42149.0, "held out")
    assert most.point == RatePoint(system="appo:overlap.max_lag=1000", scenario="emulated/dmlab-36-cores:num_envs=576")
    assert [name.split(", ")[-1] for name in rows if name.startswith("deepmind_impala on dmlab, system2")] == [
        "72 envs",
        "144 envs",
        "288 envs",
    ]
    assert (rows["rlpyt_ppo on vizdoom"].published, rows["rlpyt_ppo on vizdoom"].point) == (73544.0, None)


def test_tables_state_their_tolerances() -> None:
    """The checks of each table are those that its description states."""
    bounds = {name: [(one.bound, one.holds is not None) for one in _judged(make())] for name, make in TABLES.items()}
    assert bounds == {
        "ver-table1": [
            ("at least 15", True),
            ("at most 5%", True),
            *[("within 12%", True)] * 6,
        ],
        "ver-navigation": [*[("within 8%", True)] * 4, *[("within 10%", True)] * 2],
        "ddppo-scaling": [
            *[("within 5%", True)] * 3,
            *[("within 15%", True)] * 3,
            ("-30% or less", True),
            ("none", False),
        ],
        "sample-factory-table1": [*[("within 10%", True)] * 4, *[("within 20%", True)] * 2],
        "sample-factory-table-a2": [("within 20%", True)] * 24,
    }


def _judged(table: PaperTable) -> list[ClaimOutcome]:
    return judge(table, fill(table, dict.fromkeys(table.points, 100.0), {}))


def test_predicted_rates_are_means_of_what_predict_gives(tmp_path: Path) -> None:
    """A point's rate is the mean over its seeds of the rates that `rlbench predict` records for the same cells."""
    point = RatePoint(system="ddppo", gpus=2, scenario=SMALL, workload="heterogeneous")
    table = make_table(make_row("small", 100.0, point=point), seconds=5.0)
    rates = predict_rates(table, make_console())
    options = ("--systems", "ddppo", "--gpus", "2", "--scenario", SMALL, "--workload", "heterogeneous")
    assert call("predict", *options, "--seeds", "0..2", "--seconds", "5", "--out", str(tmp_path)).code == 0
    recorded = [run.record.figures.steps_per_s for run in read_runs(tmp_path)]
    assert len(set(recorded)) == 3
    assert rates == {point: fmean(rate for rate in recorded if rate)}


def test_pure_simulation_is_cores_over_step_time(tmp_path: Path) -> None:
    """Environments alone step as often as the cores of their GPUs allow; resets cost time; 0 cores: one each."""
    even = SHIPPED
    for key, value in (("sigma", "0.0"), ("share", "0.0"), ("median_ms", "5.0"), ("cores_per_gpu", "10")):
        even = re.sub(rf"(?m)^{key} = \S+", f"{key} = {value}", even)
    texts = {
        "even": even,
        "resets": even.replace("reset_ms = 0.0", "reset_ms = 1000.0"),
        "free": even.replace("cores_per_gpu = 10", "cores_per_gpu = 0"),
    }
    rates = {}
    length = Length(num_seeds=lambda _: 1)
    for name, text in texts.items():
        path = tmp_path / f"{name}.toml"
        path.write_text(text, encoding="utf-8")
        point = RatePoint(system=None, scenario=f"emulated/{path}", gpus=2)
        rates[name] = Planned([point], length).rates()[point]
    assert rates["even"] == pytest.approx(2 * 10 / 0.005)
    assert rates["resets"] == pytest.approx(
        2 * 10 / (0.005 + 1.0 / 200), rel=0.02
    )  # an episode has 200 steps on average
    assert rates["free"] == pytest.approx(2 * 16 / 0.005)
    with pytest.raises(ValueError, match="pointnav: its times are not known"):
        Planned([RatePoint(system=None, scenario="pointnav")], length).rates()


def _record(number: int, rate: float, scenario: str = SMALL, **changes: Any) -> RunRecord:
    """The record of a run of `sync` on emulated GPUs, the `number`-th of all."""
    planned = plan_predictions(PredictOptions(systems=changes.pop("system", "sync"), scenario=scenario, gpus="2"))[0][0]
    cell = replace(planned, device=changes.pop("device", "emulated"), seed=changes.pop("seed", 0))
    return make_record(
        id=f"run-{number}",
        started_at=f"2026-01-01T00:00:{number:02d}+00:00",
        cell=cell_record(cell).model_dump(),
        configuration=cell.configuration(),
        **changes,
    ).model_copy(update={"figures": Figures(steps_per_s=rate, emulated=True)})


def test_measured_rates_are_of_the_same_work(tmp_path: Path) -> None:
    """A point has the mean of the latest finished run of each seed, whatever its time scale, and of no other work."""
    point = RatePoint(system="sync:preempt=never", gpus=2, scenario=SMALL)
    table = make_table(
        make_row("small", 100.0, point=point), make_row("alone", 1.0, point=RatePoint(system=None, scenario=""))
    )
    assert measured_rates(table, tmp_path / "none") == {}
    of_others = (
        _record(0, 1.0, device="cpu"),
        _record(1, 1.0, scenario="emulated/open-fridge:num_envs=2:rollout_steps=16"),
        _record(2, 1.0, system="ver"),
        _record(3, 1.0, system="sync:learn.epochs=3"),
        _record(4, 1.0, status="failed", reason="it broke"),
        _record(5, 1.0).model_copy(update={"configuration": {"scenario": "of an earlier profile"}}),
    )
    for record in of_others:
        write_run_folder(tmp_path / "sweep", record)
    assert measured_rates(table, tmp_path) == {}
    for record in (_record(6, 1.0), _record(7, 90.0, f"{SMALL}:time_scale=0.5"), _record(8, 110.0, seed=1)):
        write_run_folder(tmp_path / "sweep", record)
    assert measured_rates(table, tmp_path) == {point: 100.0}


def test_commands_are_few_and_within_reach(tmp_path: Path) -> None:
    """What is missing is measured by one sweep for all that can share it; what needs many GPUs is not."""
    points = [
        RatePoint(system=system, gpus=gpus, scenario=scenario)
        for scenario in ("emulated/a", "emulated/b")
        for system in ("ver", "sync")
        for gpus in (8, 1, 64)
    ]
    points.append(RatePoint(system="ver", gpus=2, scenario="emulated/a", workload="heterogeneous"))
    points.append(RatePoint(system=None, scenario="emulated/a"))
    out = tmp_path / "my runs"
    start, end = "rlbench run --device emulated", f"--iterations 4 --out '{out}'"
    assert list(commands(make_table(), points, out)) == [
        f"{start} --systems ver,sync --gpus 1,8 --scenario emulated/a,emulated/b {end}",
        f"{start} --systems ver --gpus 2 --scenario emulated/a --workload heterogeneous {end}",
    ]


def test_a_table_of_real_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`reproduce` predicts, says how to measure what was not, and shows what was once `run` has; it writes nothing."""
    point = RatePoint(system="sync", gpus=1, scenario=SMALL)
    row = make_row("small", 100.0, point=point)
    table = make_table(row, checks=(AgainstPrediction(name="small", other="small", high=0.0),), protocol="ddppo")
    monkeypatch.setattr(command, "TABLES", {"tiny": lambda: table})
    monkeypatch.chdir(tmp_path)
    before = call("reproduce", "tiny")
    assert before.code == 0, before.err
    assert re.search(r"(?m)^small +\| +100 \| +\d\S* \| +[+-]\S+% \| +- \| +- \| fitted", before.out)
    assert "rlbench-runs has no run for 1 of 1 rates; to make them: rlbench run --device emulated" in before.out
    assert "ok      small against small, both predicted: +0.0%; bound: +0% or less" in before.out
    assert list(tmp_path.iterdir()) == []
    made = launch("run", "--systems", "sync", *QUICK, "--iterations", "4", folder=tmp_path)
    assert made.code == 0, made.err
    after = call("reproduce", "tiny")
    assert after.code == 0
    (run,) = read_runs(tmp_path / "rlbench-runs")
    shown = re.escape(number(run.record.figures.steps_per_s))
    assert re.search(rf"(?m)^small +\| +100 \| +\d\S* \| +[+-]\S+% \| +{shown} \| +[+-]\S+% \| fitted", after.out)
    assert "to make them" not in after.out


def test_figures_are_left_out_one_column_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a profile whose step takes twice as long, each figure is predicted by a fit to the others, from elsewhere."""
    short, stepping = Length(seconds=30.0, num_seeds=lambda _: 2), "emulated/open-fridge:num_envs=4:rollout_steps=64"
    points = [RatePoint(system=system, scenario=stepping, gpus=gpus) for system in ("sync", "nover") for gpus in (1, 2)]
    made = Planned(points, short).rates({"step.median_ms": 6.0})
    rows = [make_row(f"{p.system} {p.gpus}", made[p], point=p, labels=(str(p.system), str(p.gpus))) for p in points]
    table = replace(
        make_table(*rows, make_row("held", 1.0, fit="held out", point=points[0], labels=("x", "1"))),
        titles=("system", "GPUs"),
        fits=(
            Fits(
                scenario="emulated/open-fridge",
                start={"step.median_ms": 3.0},
                leave_out=("system", "GPUs"),
                length=short,
            ),
        ),
    )
    monkeypatch.setattr(command, "TABLES", {**TABLES, "tiny": lambda: table})
    assert command.reproduce("tiny", tmp_path, held_out=True) == 0
    out = capsys.readouterr().out
    lines = [[cell.strip() for cell in line.split("|")] for line in out.splitlines() if line.count("|") == 5]
    assert [line[:2] for line in lines[1:]] == [
        *(["system sync", f"sync {gpus}"] for gpus in (1, 2)),
        *(["system nover", f"nover {gpus}"] for gpus in (1, 2)),
        *(["GPUs 1", f"{system} 1"] for system in ("sync", "nover")),
        *(["GPUs 2", f"{system} 2"] for system in ("sync", "nover")),
    ]
    assert all(abs(float(line[5].rstrip("%"))) < 6 for line in lines[1:])
    told = re.findall(
        r"without one of (\S+) at a time, .* error (\S+)% of 4 figures; (\d) of them in the 95% interval", out
    )
    assert [name for name, *_ in told] == ["system", "GPUs"]
    assert all(float(mean) < 6 for _, mean, _ in told)
    assert all(int(within) >= 3 for *_, within in told)
    assert_refused(call("reproduce", "ver-navigation", "--held-out"), "--held-out: its profiles are not fitted to")


def test_bad_names() -> None:
    """A table that is not known, or none at all, is refused in one line with the known ones, exit code 2."""
    assert_refused(call("reproduce", "nope"), "reproduce nope: unknown; known: ver-table1, ver-navigation", ", or all")
    assert_refused(call("reproduce"), "Missing argument 'name'", "rlbench reproduce --help")
    help_text = "".join(call("reproduce", "--help").out.split())
    assert [name for name in (*TABLES, "all") if name not in help_text] == []
