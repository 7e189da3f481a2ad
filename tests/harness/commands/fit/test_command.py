from __future__ import annotations

import csv
import re
import tomllib
from pathlib import Path

import pytest

from rlbench.harness.commands.fit.figures import read_figures
from rlbench.harness.predicting.points import Length, Planned, RatePoint
from rlbench.scenarios.emulated.profile import PROFILES_FOLDER, read_profile
from tests.harness.command import assert_refused, call

HEAD = "system,gpus,steps_per_s,settings,workload,held_out\n"
SETTINGS = "num_envs=4:rollout_steps=16"


def _measured(path: Path) -> list[float]:
    """Writes figures of a profile that is `open-fridge` but for a step that takes twice as long, and returns them."""
    points = [
        RatePoint(system=system, gpus=gpus, scenario=f"emulated/open-fridge:{SETTINGS}")
        for system, gpus in (("sync", 1), ("nover", 1), ("sync", 2), ("ver", 2))
    ]
    rates = Planned(points, Length(seconds=20.0, num_seeds=lambda _: 4)).rates({"step.median_ms": 6.0})
    lines = [f"{p.system},{p.gpus},{rate},{SETTINGS},,{'yes' * (p.system == 'ver')}\n" for p, rate in rates.items()]
    path.write_text("# made up\n" + HEAD + "".join(lines) + f"nover,4,,{SETTINGS},,\n", encoding="utf-8")
    return list(rates.values())


def test_a_profile_is_fitted_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was changed is found again; the file holds it with its interval, is a profile, and says what it rests on."""
    monkeypatch.chdir(tmp_path)
    figures = _measured(tmp_path / "figures.csv")
    asked = ("--profile", "open-fridge", "--to", "figures.csv", "--keys", "step.median_ms,network.latency_ms")
    ended = call("fit", *asked, "--seconds", "20")
    assert ended.code == 0, ended.err
    text = (tmp_path / "fitted.toml").read_text(encoding="utf-8")
    profile = read_profile("fitted.toml")
    assert profile.step.median_ms == pytest.approx(6.0, rel=0.05)
    assert "step.median_ms" not in profile.assumed
    assert "network.latency_ms" in profile.assumed
    assert profile.about.endswith("2 keys fitted to 3 figures of figures.csv")
    assert re.search(r"(?m)^median_ms = \S+ +# fitted: 95% interval \S+ to \S+$", text)
    assert re.search(r"(?m)^latency_ms = \S+ +# the figures say little of it: 95% interval", text)
    assert re.search(r"(?m)^weights_mb = 20.0 +# as in open-fridge: assumed$", text)
    unchanged = tomllib.loads((PROFILES_FOLDER / "open-fridge.toml").read_text(encoding="utf-8"))
    assert profile.gpu.learn_item_ms == unchanged["gpu"]["learn_item_ms"]
    rows = [[cell.strip() for cell in line.split("|")] for line in ended.out.splitlines() if line.count("|") == 5]
    assert [row[0] for row in rows] == [
        "of",
        f"sync on 1 GPU {SETTINGS}",
        f"nover on 1 GPU {SETTINGS}",
        f"sync on 2 GPUs {SETTINGS}",
        f"ver on 2 GPUs {SETTINGS}",
        f"nover on 4 GPUs {SETTINGS}",
    ]
    assert [row[-1] for row in rows] == ["figure", *["fitted"] * 3, "held out", "wanted"]
    assert float(rows[4][2].replace(",", "")) == pytest.approx(figures[3], rel=0.06)
    assert re.search(r"(?m)^fitted: mean absolute error of 3 figures \S+%$", ended.out)
    assert re.search(r"(?m)^held out: mean absolute error of 1 figures \S+%$", ended.out)
    again = call("fit", *asked)
    assert_refused(again, "--out fitted.toml: exists")


def test_figures_are_read(tmp_path: Path) -> None:
    """Comments and empty lines are none; the environments alone have no system; columns at the end may be missing."""
    path = tmp_path / "f.csv"
    path.write_text("# of mine\nsystem,gpus,steps_per_s\n\n,2,100\nver:preempt=never,8,\n", encoding="utf-8")
    alone, wanted = read_figures(path, "open-fridge")
    assert alone.point == RatePoint(system=None, gpus=2, scenario="emulated/open-fridge")
    assert (alone.name, alone.fitted_to) == ("environments alone on 2 GPUs", 100.0)
    assert (wanted.point.system, wanted.steps_per_s, wanted.fitted_to) == ("ver:preempt=never", None, None)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([HEAD.strip().split(","), ["ver", "4", "10", "num_envs=8", "heterogeneous", "no"]])
    (one,) = read_figures(path, "mine.toml")
    assert one.point == RatePoint(
        system="ver", gpus=4, scenario="emulated/mine.toml:num_envs=8", workload="heterogeneous"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no figure to fit to; it is a CSV file with system,gpus,steps_per_s"),
        (HEAD + "ver,1,,,,\n", "has no figure to fit to"),
        (HEAD + "ver,1,10,,,yes\n", "has no figure to fit to"),
        (HEAD + "ver,0,10,,,\n", ":2: gpus: Input should be greater than or equal to 1, not '0'"),
        (HEAD + "ver,1,10,,,\nver,1,-10,,,\n", ":3: steps_per_s: "),
        (HEAD + "ver,1,nan,,,\n", ":2: steps_per_s: "),
        (HEAD + "ver,1,10,,odd,\n", ":2: workload: "),
        (HEAD + "ver,1,10,,,maybe\n", ":2: held_out: "),
        (HEAD + "ver,1,10,,,,7\n", ":2: more: "),
        ("system,gpus\nver,1\n", ":2: steps_per_s: Field required"),
        (HEAD + f"{'x' * 200_000},1,10,,,\n", "is no CSV file: field larger"),
        ("system,gpus,steps_per_s,colour\nver,1,2,red\n", ":2: colour: "),
    ],
)
def test_bad_figures_are_refused(text: str, said: str, tmp_path: Path) -> None:
    """An error names the file, the line and the rule."""
    path = tmp_path / "f.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape("--to ")) as caught:
        read_figures(path, "open-fridge")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    """In one line, exit code 2, before anything is predicted."""
    path = tmp_path / "f.csv"
    path.write_text(HEAD + "ver,1,10,,,\n", encoding="utf-8")
    to = ("--to", str(path), "--out", str(tmp_path / "o.toml"))
    assert_refused(call("fit", "--profile", "nope", *to), "emulated/nope: no such profile; known: open-fridge")
    assert_refused(call("fit", "--profile", "open-fridge", *to, "--keys", "step.x"), "--keys step.x: unknown")
    assert_refused(call("fit", "--profile", "open-fridge", "--to", str(tmp_path)), "is a folder")
    assert_refused(
        call("fit", "--profile", "open-fridge", "--to", str(path), "--out", "o.txt"), "--out o.txt: must end in .toml"
    )
    path.write_text(HEAD + '"ver,sync",1,10,,,\n', encoding="utf-8")
    assert_refused(call("fit", "--profile", "open-fridge", *to), "must be one system on one scenario")
    path.write_text(HEAD + "nope,1,10,,,\n", encoding="utf-8")
    assert_refused(call("fit", "--profile", "open-fridge", *to), "nope")
    assert list(tmp_path.iterdir()) == [path]
