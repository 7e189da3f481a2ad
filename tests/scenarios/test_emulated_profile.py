from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from rlbench.scenarios.emulated import FAMILY
from rlbench.scenarios.emulated.profile import MOST_CORES, PROFILES_FOLDER, read_profile, shipped_profiles

OPEN_FRIDGE = (PROFILES_FOLDER / "open-fridge.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("cpu.cores_per_gpu", "-1", "must be greater than or equal to 0, not -1"),
        ("cpu.cores_per_gpu", "2.5", "must be a valid integer, not 2.5"),
        ("cpu.cores_per_gpu", str(MOST_CORES + 1), f"must be less than or equal to {MOST_CORES}"),
        ("cpu.actor_infer_ms", "-20.0", "must be greater than or equal to 0, not -20.0"),
        ("cpu.actor_infer_ms", "inf", "must be a finite number, not inf"),
        ("network.synchronize_ms", "-1.0", "must be greater than or equal to 0, not -1.0"),
        ("network.synchronize_doubling_ms", "-0.1", "must be greater than or equal to 0, not -0.1"),
        ("network.synchronize_doubling_ms", "nan", "must be a finite number, not nan"),
        ("network.latency_ms", "-0.05", "must be greater than or equal to 0, not -0.05"),
        ("network.latency_ms", "inf", "must be a finite number, not inf"),
        ("network.latency_ms", "'fast'", "must be a valid number, not 'fast'"),
        ("network.bandwidth_mb_per_s", "0.0", "must be greater than or equal to 0.001, not 0.0"),
        ("network.bandwidth_mb_per_s", "-1.0", "must be greater than or equal to 0.001, not -1.0"),
        ("network.bandwidth_mb_per_s", "inf", "must be a finite number, not inf"),
        ("network.weights_mb", "-20.0", "must be greater than or equal to 0, not -20.0"),
        ("network.weights_mb", "inf", "must be a finite number, not inf"),
        ("network.weights_mb", "true", "must be a valid number, not True"),
    ],
)
def test_an_impossible_value_is_refused(key: str, value: str, rule: str, tmp_path: Path) -> None:
    """A value that no machine can have is refused with the file, the line, the key, the rule and the value."""
    name = key.partition(".")[2]
    (number,) = (place for place, line in enumerate(OPEN_FRIDGE.splitlines(), 1) if line.startswith(f"{name} ="))
    path = tmp_path / "mine.toml"
    path.write_text(re.sub(rf"(?m)^{name} = \S+", f"{name} = {value}", OPEN_FRIDGE), encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(f"{path}:{number}: {key}: {rule}")) as refused:
        read_profile(str(path))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("table", ["cpu", "network"])
def test_a_table_that_is_missing_is_named(table: str, tmp_path: Path) -> None:
    """Every key of a profile is needed, and a profile without a whole table is told so."""
    path = tmp_path / "mine.toml"
    path.write_text(re.sub(rf"(?ms)^\[{table}\].*?(?=^\[|\Z)", "", OPEN_FRIDGE), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"mine\.toml:\d+: {table}: is missing; it is needed"):
        read_profile(str(path))


def test_what_is_no_text_is_no_profile(tmp_path: Path) -> None:
    """The file is named, and what it must be."""
    path = tmp_path / "mine.toml"
    path.write_bytes(OPEN_FRIDGE.encode() + b"# \x80")
    with pytest.raises(ValueError, match=re.escape(f"{path}: is no text in UTF-8; a profile is a TOML file")):
        read_profile(str(path))


def test_what_a_profile_says_reaches_the_gpu() -> None:
    """Cores, actors and the network of a profile are the emulated GPU's costs, in seconds and bytes."""
    scenario = FAMILY.make("open-fridge", "homogeneous")
    cpu, network = scenario.profile.cpu, scenario.profile.network
    costs = scenario.gpu_costs
    assert costs.cores == cpu.cores_per_gpu
    assert costs.actor_infer_s == pytest.approx(cpu.actor_infer_ms / 1e3)
    assert costs.network.synchronize_s == pytest.approx(network.synchronize_ms / 1e3)
    assert costs.network.synchronize_doubling_s == pytest.approx(network.synchronize_doubling_ms / 1e3)
    assert costs.network.latency_s == pytest.approx(network.latency_ms / 1e3)
    assert costs.network.link_s == pytest.approx(network.weights_mb / network.bandwidth_mb_per_s)


@pytest.mark.parametrize("time_scale", [0.1, 3.0])
def test_messages_are_as_much_slower_as_everything_else(time_scale: float) -> None:
    """With a time scale all messages take that many times as long, latency and bandwidth alike."""
    plain = FAMILY.make("open-fridge", "homogeneous")
    costs, scaled = plain.gpu_costs, replace(plain, time_scale=time_scale).gpu_costs
    for num_ranks in (2, 8):
        for name in ("all_reduce_s", "synchronize_ranks_s"):
            was, now = (getattr(one.network, name)(num_ranks) for one in (costs, scaled))
            assert now == pytest.approx(was * time_scale)
    assert scaled.network.link_s == pytest.approx(costs.network.link_s * time_scale)
    assert scaled.actor_infer_s == pytest.approx(costs.actor_infer_s * time_scale)


@pytest.mark.parametrize("name", shipped_profiles())
def test_shipped_profiles_can_be_read(name: str) -> None:
    """Each shipped profile is right, says what it is about, and can be run."""
    profile = read_profile(name)
    assert len(profile.about) > 20
    assert FAMILY.make(name, "heterogeneous").num_envs == profile.collect.num_envs
