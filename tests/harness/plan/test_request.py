from __future__ import annotations

from pathlib import Path

import pytest

from rlbench.harness.contract.budget import Limits
from rlbench.harness.devices import kinds
from rlbench.harness.plan.options import RunOptions
from rlbench.harness.plan.request import complete
from rlbench.scenarios.emulated.profile import PROFILES_FOLDER
from tests.harness.command import assert_refused, call

SHIPPED = (PROFILES_FOLDER / "open-fridge.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("median_ms = ", "# ", "mine.toml:{table}: step.median_ms: is missing"),
        (
            "median_ms = ",
            "median_ms = -4.4 #",
            "mine.toml:{line}: step.median_ms: must be greater than or equal to 0.000001, not -4.4",
        ),
        ("median_ms = ", "median_ms = nan #", "mine.toml:{line}: step.median_ms: must be a finite number, not nan"),
        (
            "median_ms = ",
            "median_ms = 'slow' #",
            "mine.toml:{line}: step.median_ms: must be a valid number, not 'slow'",
        ),
        ("median_ms = ", "median_ms = true #", "mine.toml:{line}: step.median_ms: must be a valid number, not True"),
        ("median_ms = ", "median = ", "mine.toml:{table}: step.median_ms: is missing"),
        ("sigma = ", "speed = 3\nsigma = ", "mine.toml:{line}: step.speed: unknown; known: median_ms, sigma"),
        ("num_envs = 16 ", "num_envs = 1.5 ", "mine.toml:{line}: collect.num_envs: must be a valid integer, not 1.5"),
        ("share = ", "share = 1 #", "mine.toml:{line}: collision.share: must be less than or equal to 0.999, not 1"),
        ("[network]", "[networks]", "mine.toml:1: network: is missing"),
        ("[network]", "[network", "mine.toml:{line}: not TOML: "),
        ("about = ", "about = '''", "not TOML: "),
    ],
)
def test_bad_profiles(before: str, after: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile that breaks a rule is refused in one line with file, line, key, rule and value."""
    monkeypatch.chdir(tmp_path)
    line, table = (SHIPPED[: SHIPPED.index(text)].count("\n") + 1 for text in (before, "[step]"))
    Path("mine.toml").write_text(SHIPPED.replace(before, after, 1), encoding="utf-8")
    assert_refused(
        call("run", "--systems", "sync", "--scenario", "emulated/mine.toml"), expected.format(line=line, table=table)
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def test_profiles_that_are_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is missing, a folder, empty, or not UTF-8 is refused in one line that names it."""
    monkeypatch.chdir(tmp_path)
    Path("folder.toml").mkdir()
    Path("empty.toml").touch()
    Path("latin.toml").write_bytes(b'about = "caf\xe9"\n')
    for name, expected in (
        ("missing.toml", "no such profile"),
        ("folder.toml", "no such profile"),
        ("empty.toml", "empty.toml:1: about: is missing"),
        ("latin.toml", "latin.toml: is no text in UTF-8"),
    ):
        assert_refused(call("run", "--systems", "sync", "--scenario", f"emulated/{name}"), name, expected)


def test_ones_own_profile_is_a_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`emulated/path.toml` is planned like a shipped one, from a relative and from an absolute path."""
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(SHIPPED, encoding="utf-8")
    for name in ("mine.toml", f"{tmp_path}/mine.toml"):
        ended = call("run", "--systems", "sync", "--scenario", f"emulated/{name}", "--dry-run")
        assert ended.code == 0, ended.err
        assert f"sync emulated/{name} homogeneous x1 seed 0" in ended.out


def test_without_a_gpu_emulated_ones_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU, device, scenario and time scale are chosen and said in one line."""
    monkeypatch.setattr(kinds, "visible_gpus", list)
    made, line = complete(RunOptions(systems="sync"))
    assert (made.device, made.scenarios) == ("emulated", "emulated/open-fridge:time_scale=0.5")
    assert line is not None
    assert "no GPU here: using emulated GPUs" in line
    assert "scenario emulated/open-fridge (time scale 0.5)" in line
    assert "\n" not in line


def test_with_a_gpu_real_work_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a GPU, the default is a real scenario on it."""
    monkeypatch.setattr(kinds, "visible_gpus", lambda: [0])
    made, line = complete(RunOptions(systems="sync"))
    assert (made.device, made.scenarios) == ("cuda", "pointnav")
    assert line == "scenario pointnav; choose others with --device and --scenario"
    _, line = complete(RunOptions(systems="sync", device="cuda"))
    assert line == "scenario pointnav; choose another with --scenario"


def test_what_was_asked_for_is_not_overruled() -> None:
    """With device and scenario given, nothing is chosen, and nothing needs saying."""
    made, line = complete(RunOptions(systems="sync", device="emulated", scenario="pointnav"))
    assert (made.device, made.scenarios, line) == ("emulated", "pointnav", None)


def test_time_scale_goes_to_every_emulated_scenario() -> None:
    """`--time-scale` is a setting of each scenario of the list, with all its digits."""
    made, _ = complete(
        RunOptions(
            systems="sync", device="emulated", scenario="emulated, emulated/open-fridge:num_envs=2", time_scale=1 / 3
        )
    )
    assert made.scenarios == (
        "emulated:time_scale=0.333333333333,emulated/open-fridge:num_envs=2:time_scale=0.333333333333"
    )


@pytest.mark.parametrize(("protocol", "limits"), [("ddppo", Limits(iterations=10)), ("steady", Limits(seconds=30))])
def test_without_limits_the_protocol_says_how_long(protocol: str, limits: Limits) -> None:
    """A run without a limit is as long as its protocol says, which `--help` says too; any limit replaces that."""
    made, _ = complete(RunOptions(systems="sync", device="cpu", protocol=protocol))
    assert made.limits == limits
    made, _ = complete(RunOptions(systems="sync", device="cpu", protocol=protocol, env_steps=3))
    assert made.limits == Limits(env_steps=3)


def test_conditions_are_written_alike() -> None:
    """`--until` means the same however its number and spaces are typed."""
    asked = (
        RunOptions(systems="sync", device="cpu", until=text)
        for text in ("success>=0.9", " success >= 0.90", "success>=9e-1")
    )
    assert {complete(one)[0].limits.until for one in asked} == {"success>=0.9"}
