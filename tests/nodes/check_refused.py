"""What is refused on two hosts before any rank starts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.nodes.hosts import TwoHosts
from tests.nodes.sweeps import (
    LONG,
    SYSTEMS,
    TWO_A_HOST,
    copied_source,
    finish,
    imports_first,
    is_quiet,
    records,
    remote_by_host,
    start,
)

pytestmark = pytest.mark.xdist_group("hosts")
"""One after the other: they take a machine for two."""
PROFILES = Path(__file__).parents[2] / "scenarios" / "emulated" / "profiles"


def check_one_machine_is_needed(hosts: TwoHosts, tmp_path: Path) -> None:
    """A trainer of one's own is not spread over two; all systems of ours are."""
    example = Path(__file__).parents[2] / "examples" / "ppo.toml"
    here = ("--device", "cpu", "--scenario", "pointnav")
    said = finish(start(hosts, tmp_path, "--systems", f"own={example}", *TWO_A_HOST, *here))
    assert "own: all its ranks are on one machine, and x4 needs 2 here" in said
    said = finish(start(hosts, tmp_path, "--systems", ",".join(SYSTEMS), *TWO_A_HOST, "--dry-run"))
    assert "skipped" not in said
    assert "torchrun --nnodes=2 --nproc-per-node=2 --node-rank=1 --rdzv-backend=rlbench" in " ".join(said.split())


@pytest.mark.parametrize("what", ["rlbench's code", "torch"])
def check_another_version(hosts: TwoHosts, tmp_path: Path, what: str) -> None:
    """A host whose rlbench or torch is another one is refused before anything starts."""
    other = tmp_path / "other"
    other.mkdir()
    if what == "torch":
        (other / "torch-1.0.dist-info").mkdir()
        (other / "torch-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.0\n")
    else:
        copied_source(other)
        (other / "systems" / "__init__.py").write_text('"""Changed."""\n')
    remote = remote_by_host(tmp_path, {hosts.names[1]: imports_first(other)})
    run = start(hosts, tmp_path / "runs", "--systems", "ver", *TWO_A_HOST, *LONG, "--remote", remote)
    said = finish(run, 60)
    (record,) = records(tmp_path / "runs")
    assert record.reason is not None
    assert f"node 1 ({hosts.names[1]}) has {what}" in record.reason, said
    assert "install the same on all nodes" in record.reason
    assert record.counters.env_steps == 0


def check_another_profile(hosts: TwoHosts, tmp_path: Path) -> None:
    """A file that is another one on a host is another experiment."""
    for name, num_envs in (("here", 2), ("there", 3)):
        (tmp_path / name).mkdir()
        text = (PROFILES / "open-fridge.toml").read_text()
        (tmp_path / name / "own.toml").write_text(re.sub(r"(?m)^num_envs = .*$", f"num_envs = {num_envs}", text))
    remote = remote_by_host(tmp_path, {hosts.names[1]: f"env --chdir={tmp_path / 'there'}"})
    more = ("--scenario", "emulated/own.toml", "--remote", remote)
    run = start(hosts, tmp_path / "runs", "--systems", "ver", *TWO_A_HOST, *LONG, *more, cwd=tmp_path / "here")
    said = finish(run, 60)
    (record,) = records(tmp_path / "runs")
    assert record.reason is not None
    assert "emulated/own.toml is another one here" in record.reason, said
    assert f"on node 1 ({hosts.names[1]})" in record.reason


def check_too_few_gpus(hosts: TwoHosts, tmp_path: Path) -> None:
    """Ranks do not share a GPU unless that is asked for."""
    run = start(hosts, tmp_path, "--systems", "ver", *TWO_A_HOST, *LONG, "--device", "cuda", "--scenario", "pointnav")
    said = finish(run, 60)
    (record,) = records(tmp_path)
    assert record.reason is not None
    assert f"node 0 ({hosts.names[0]}) has 0 NVIDIA GPUs for 2 ranks; lower --gpus-per-node" in record.reason, said


@pytest.mark.parametrize(
    ("remote", "why"),
    [
        ("false {host}", "its command said nothing (exited with 1)"),
        ("sh -c 'echo no route to {host} >&2; exit 255'", "no route to "),
        ("sh -c 'sleep 1000' {host}", "has not answered within 10 s"),
    ],
)
def check_a_host_that_cannot_be_reached(hosts: TwoHosts, tmp_path: Path, remote: str, why: str) -> None:
    """The cell is failed, with the host and what its command said."""
    run = start(hosts, tmp_path, "--systems", "ver", *TWO_A_HOST, *LONG, "--stall", "5", "--remote", remote)
    said = finish(run, 60)
    (record,) = records(tmp_path)
    assert record.reason is not None
    assert re.search(r"node [01] \(", record.reason), said  # whichever is found first
    assert why in record.reason, said
    assert is_quiet(hosts)
