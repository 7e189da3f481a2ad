from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from rlbench.harness.cluster.job import own_job
from rlbench.harness.commands.run import PlaceCheck, run_sweep
from rlbench.harness.launch.launcher import choose
from rlbench.harness.launch.nodes.launches import (
    SRUN,
    SSH,
    Launch,
    NodeSeat,
    Slurm,
    address_of,
    interface_towards,
    launch_of,
)
from rlbench.harness.launch.nodes.node_link import NodeLink, decide
from rlbench.harness.launch.options import LaunchOptions
from rlbench.harness.launch.torchrun import dry_run_lines, endpoint
from rlbench.harness.plan.options import RunOptions
from rlbench.harness.plan.planning import plan
from rlbench.harness.plan.request import complete
from rlbench.harness.processes.outcome import Outcome
from rlbench.harness.run.sweep import Sweep
from tests.harness.runs import PATIENCE_S, wait_until

EXAMPLE = Path(__file__).parents[4] / "examples" / "ppo.toml"


def launch(**fields: object) -> Launch:
    """Two hosts of four GPUs."""
    return Launch(**{"hosts": ("a", "b"), "gpus_per_node": 4, "remote": "env {host}", **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(("gpus", "nodes"), [(1, [range(1)]), (4, [range(4)]), (6, [range(4), range(4, 6)])])
def test_ranks_fill_one_node_after_the_other(gpus: int, nodes: list[range]) -> None:
    """The last one may have fewer."""
    assert launch().num_nodes(gpus) == len(nodes)
    assert [launch().ranks_of(node, gpus) for node in range(len(nodes))] == nodes


def test_too_few_hosts_are_refused() -> None:
    """With the rule and the values."""
    with pytest.raises(ValueError, match="--gpus 9: needs 3 hosts of 4 GPUs, and --hosts names 2"):
        launch().num_nodes(9)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"hosts": ()}, "--hosts: must be 1 to 1,024 different hosts"),
        ({"hosts": ("a", "a")}, "--hosts: must be 1 to 1,024 different hosts"),
        ({"hosts": ("a", "-oProxyCommand=x")}, "'-oProxyCommand=x' is no name of a host"),
        ({"hosts": ("a b",)}, "'a b' is no name of a host"),
        ({"gpus_per_node": 0}, "--gpus-per-node 0: must be at least 1"),
        ({"remote": "ssh a"}, "must hold {host}"),
        ({"remote": "ssh '{host}"}, "No closing quotation"),
    ],
)
def test_a_launch_is_checked(fields: dict[str, object], why: str) -> None:
    """Once, when it is made."""
    with pytest.raises(ValueError, match=why.replace("{", r"\{").replace("}", r"\}")):
        launch(**fields)


def test_ssh_gets_its_words_quoted() -> None:
    """It gives them to a shell; other commands do not."""
    words = ["/opt/my python", "-m", "x"]
    assert launch(remote="ssh -q {host}").command(1, words) == ["ssh", "-q", "b", "'/opt/my python'", "-m", "x"]
    assert launch(remote="srun -w {host}").command(0, words) == ["srun", "-w", "a", *words]


@pytest.mark.parametrize("place", [None, launch(), Slurm(gpus_per_node=8, settings={"partition": "gpu"}, at_once=3)])
def test_places_come_back_from_a_plan(place: Launch | Slurm | None, tmp_path: Path) -> None:
    """As JSON has them, and the head has them."""
    told = None if place is None else json.loads(json.dumps(asdict(place)))
    assert launch_of(told) == place
    if isinstance(place, Launch):
        place.leave(tmp_path)
    assert Launch.read(tmp_path) == (place if isinstance(place, Launch) else None)


def test_a_seat_comes_back(tmp_path: Path) -> None:
    """The keeper reads what the agent wrote; without it, it has all ranks."""
    assert NodeSeat.read(tmp_path) is None
    seat = NodeSeat(
        node=1,
        num_nodes=2,
        first_rank=4,
        num_local=3,
        address="10.0.0.1",
        port=4,
        interface="eth0",
        run_id="x",
    )
    seat.leave(tmp_path)
    assert NodeSeat.read(tmp_path) == seat
    assert seat.ranks == range(4, 7)


def test_interfaces_are_found() -> None:
    """By name, and by whom they lead to."""
    assert address_of("lo") == "127.0.0.1"
    assert interface_towards("127.0.0.1") == "lo"
    with pytest.raises(ValueError, match=f"--interface none0: {socket.gethostname()} has .*lo"):
        address_of("none0")
    with pytest.raises(ValueError, match=r"--hosts: nowhere\.invalid: .*; name the network interface with --interface"):
        interface_towards("nowhere.invalid")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"launcher": "kubernetes"}, "--launcher kubernetes: unknown; known: local, torchrun, slurm"),
        ({"hosts": "a"}, "--hosts: goes with --launcher torchrun"),
        ({"gpus_per_node": 2}, "--gpus-per-node: goes with --launcher torchrun or slurm"),
        ({"partition": "gpu"}, "--partition: goes with --launcher slurm"),
        ({"one_allocation": True}, "--one-allocation: goes with --launcher slurm"),
        ({"launcher": "torchrun", "at_once": 3}, "--at-once: goes with --launcher slurm"),
        ({"launcher": "slurm", "hosts": "a"}, "--hosts: goes with --launcher torchrun"),
        ({"launcher": "torchrun", "hosts": "a"}, "--launcher torchrun: needs --gpus-per-node"),
        ({"launcher": "torchrun", "gpus_per_node": 2}, "needs --hosts a,b outside a Slurm allocation"),
        (
            {"launcher": "torchrun", "gpus_per_node": 2, "hosts": "a", "remote": "no-such-program {host}"},
            "no-such-program is not found",
        ),
    ],
)
def test_options_are_checked(options: dict[str, object], why: str) -> None:
    """Before anything is planned."""
    with pytest.raises(ValueError, match=why.replace("{", r"\{")):
        choose(LaunchOptions(**options), {})  # type: ignore[arg-type]


def test_this_machine_is_the_default() -> None:
    """Nothing is launched elsewhere without being asked for."""
    assert choose(LaunchOptions(), {}) is None


def test_hosts_are_those_that_were_named() -> None:
    """In their order, reached as was said."""
    options = LaunchOptions(launcher="torchrun", hosts="b, a", gpus_per_node=2, remote="env {host}", interface="lo")
    assert choose(options, {"SLURM_JOB_NODELIST": "c"}) == Launch(
        hosts=("b", "a"), gpus_per_node=2, interface="lo", remote="env {host}"
    )
    assert "{host}" in SSH


def test_hosts_of_an_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm expands their names, and srun reaches them."""

    def run(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert words == ["scontrol", "show", "hostnames", "n[1-2]"]
        return subprocess.CompletedProcess(words, 0, "n1\nn2\n", "")

    monkeypatch.setattr("rlbench.harness.launch.launcher.subprocess.run", run)
    monkeypatch.setattr("rlbench.harness.launch.launcher.shutil.which", lambda _: "/usr/bin/srun")
    made = choose(LaunchOptions(launcher="torchrun", gpus_per_node=2), {"SLURM_JOB_NODELIST": "n[1-2]"})
    assert made == Launch(hosts=("n1", "n2"), gpus_per_node=2, remote=SRUN)


def test_settings_of_a_plan_are_no_shell_script() -> None:
    """A plan may be somebody else's; each of its settings becomes a line of the script that Slurm runs."""
    for settings in ({"account": "lab\nrm -rf"}, {"account\nrm": "x"}, {"account": 3}):
        with pytest.raises(ValueError, match="must be options of sbatch"):
            launch_of({"gpus_per_node": 1, "settings": settings})


def test_a_plan_brings_no_command(tmp_path: Path) -> None:
    """How hosts are reached is a command: what --resume alone finds in a plan is not run."""
    out = tmp_path / "runs"
    asked = RunOptions(systems="ver", device="emulated", scenario="emulated/open-fridge")
    sweep = Sweep.create(out, plan(complete(asked)[0]), ["rlbench"], launch(hosts=("a",)))
    with pytest.raises(ValueError, match=r"was planned with --remote env \{host\}, which could run anything"):
        run_sweep(RunOptions(), out, resume=True, dry_run=False, command=[])
    options = LaunchOptions(launcher="torchrun", hosts="a", gpus_per_node=4, remote="env {host}")
    assert run_sweep(RunOptions(), out, resume=True, dry_run=True, command=[], options=options) == 0
    other = LaunchOptions(launcher="torchrun", hosts="b", gpus_per_node=4, remote="env {host}")
    with pytest.raises(ValueError, match="was planned for other machines"):
        run_sweep(RunOptions(), out, resume=True, dry_run=True, command=[], options=other)
    assert Sweep.read(sweep.plan_file).launch == launch(hosts=("a",))


@pytest.mark.parametrize(
    ("slurm", "why"),
    [("partition", "must be options of sbatch"), ("A=3", "must be options of sbatch"), ("a=1,,b=2", "must be options")],
)
def test_options_of_sbatch(slurm: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their long names."""
    monkeypatch.setattr("rlbench.harness.launch.launcher.shutil.which", lambda _: "/usr/bin/sbatch")
    monkeypatch.setattr("harness.launch.launcher.importlib.util.find_spec", lambda _: object())
    options = {"launcher": "slurm", "gpus_per_node": 8, "partition": "gpu"}
    with pytest.raises(ValueError, match=why):
        choose(LaunchOptions(**options, slurm=slurm), {})  # type: ignore[arg-type]
    made = choose(LaunchOptions(**options, slurm="account=lab,cpus-per-task=4", at_once=2), {})  # type: ignore[arg-type]
    settings = {"partition": "gpu", "account": "lab", "cpus-per-task": "4"}
    assert made == Slurm(gpus_per_node=8, settings=settings, at_once=2)


def test_slurm_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that says what is missing."""
    monkeypatch.setattr("rlbench.harness.launch.launcher.shutil.which", lambda _: None)
    with pytest.raises(ValueError, match="sbatch is not found; this is no login node of a Slurm cluster"):
        choose(LaunchOptions(launcher="slurm", gpus_per_node=8), {})
    monkeypatch.setattr("rlbench.harness.launch.launcher.shutil.which", lambda _: "/usr/bin/sbatch")
    monkeypatch.setattr("harness.launch.launcher.importlib.util.find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"submitit is not installed; use: pip install 'rlbench\[slurm\]'"):
        choose(LaunchOptions(launcher="slurm", gpus_per_node=8), {})


def test_a_system_that_needs_one_machine() -> None:
    """It is refused on two, and only there."""
    asked = RunOptions(systems=f"own={EXAMPLE}", gpus="4,8", device="cpu", scenario="pointnav")
    small, large = plan(complete(asked)[0])
    check = PlaceCheck(launch())
    check(small)
    with pytest.raises(ValueError, match="own: all its ranks are on one machine, and x8 needs 2 here"):
        check(large)
    PlaceCheck(None)(large)


def test_a_task_of_an_array_is_not_the_array() -> None:
    """SLURM_JOB_ID of one of the tasks is that of all: to requeue it would end the others."""
    of_task = {"SLURM_JOB_ID": "12", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "3"}
    assert own_job(of_task) == "12_3"
    assert own_job({"SLURM_JOB_ID": "12"}) == "12"


def node_that_ended(number: int, reason: str, at: float) -> NodeLink:
    """One whose part of the run has failed."""
    node = NodeLink(
        number=number,
        host=f"h{number}",
        command=None,  # type: ignore[arg-type]  # nothing is started
        ranks=range(number, number + 1),
        errors=Path("none"),
        poll=select.poll(),
    )
    node.outcome, node.ended_at = Outcome("failed", reason), at
    return node


@pytest.mark.parametrize(
    ("reasons", "cause"),
    [
        (["rank 0: WorkerDied: x", "rank 1: ValueError: y"], 0),
        (["rank 0: RuntimeError: Connection closed by peer [a]:1", "rank 1: ValueError: y"], 1),
        (["rank 0: ValueError: y", "rank 1 was killed by SIGKILL"], 1),
        (["rank 0: Connection reset by peer", "rank 1: Connection reset by peer"], 0),
    ],
)
def test_the_cause_is_told_from_what_follows_it(reasons: list[str], cause: int) -> None:
    """The first that failed, unless it only heard of another's end, or another was killed."""
    nodes = [node_that_ended(number, reason, float(number)) for number, reason in enumerate(reasons)]
    outcome = decide(nodes)
    assert outcome.reason == f"{reasons[cause]}; on node {cause} (h{cause})"
    assert [node.knows_cause for node in nodes] == ["by peer" not in reason for reason in reasons]


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([Outcome("interrupted", "rank 0 was told"), Outcome("finished")], ("interrupted", "rank 0 was told")),
        ([Outcome("interrupted", "rank 0 was told"), Outcome("failed", "y")], ("failed", "y")),
        ([Outcome("finished"), Outcome("ended", "the harness ended the run")], ("failed", "the harness ended the run")),
    ],
)
def test_a_rank_that_is_told_to_stop_interrupts_the_run(outcomes: list[Outcome], expected: tuple[str, str]) -> None:
    """All nodes end well then; a node that fails is another matter, and so is one that is ended alone."""
    nodes = [node_that_ended(number, "", float(number)) for number in range(2)]
    for node, outcome in zip(nodes, outcomes, strict=True):
        node.outcome = outcome
    decided = decide(nodes)
    assert decided.status == expected[0]
    assert (decided.reason or "").startswith(f"{expected[1]}; on node ")


def test_what_other_machines_have_is_to_be_said() -> None:
    """No GPU of theirs is to be seen from here, and none of ours is asked for."""
    with pytest.raises(ValueError, match="--device: say cuda, cpu or emulated"):
        complete(RunOptions(systems="ver"), elsewhere=True)
    request, _ = complete(RunOptions(systems="ver", device="cuda", gpus="16", scenario="pointnav"), elsewhere=True)
    assert [cell.gpus for cell in plan(request)] == [16]


def test_addresses_of_both_kinds() -> None:
    """Torch reads them back."""
    assert endpoint("10.0.0.1", 29400) == "10.0.0.1:29400"
    assert endpoint("fe80::1", 29400) == "[fe80::1]:29400"


def test_a_dry_run_prints_torchruns_commands() -> None:
    """One for each node, of each number of GPUs, with what the last node is left; and what the ranks inherit."""
    asked = RunOptions(systems="ver,ddppo", gpus="4,6", device="emulated", scenario="emulated/open-fridge")
    lines = dry_run_lines(launch(), plan(complete(asked)[0]))
    assert [line.split()[:3] for line in lines[1::2]] == [["on", "a:", "torchrun"]] * 2
    assert len(lines) == 5
    assert lines[2] == "x6: with GLOO_SOCKET_IFNAME=INTERFACE NCCL_SOCKET_IFNAME==INTERFACE in the environment"
    assert lines[4].split() == [
        "on",
        "b:",
        "torchrun",
        "--nnodes=2",
        "--nproc-per-node=2",
        "--node-rank=1",
        "--rdzv-backend=rlbench",
        "--rdzv-endpoint=a:29400",
        "--rdzv-id=RUN",
        "--rdzv-conf=rank=1",
        "--max-restarts=0",
        "-m",
        "rlbench.harness.launch.rank",
        "FOLDER",
    ]


def test_a_sweep_of_an_allocation_goes_on_in_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the nodes of that one, if they are enough; not outside of any."""
    asked = RunOptions(systems="ver", gpus="8", device="emulated", scenario="emulated/open-fridge")
    out, planned = tmp_path / "runs", Launch(hosts=("n1", "n2"), gpus_per_node=4, remote=SRUN)
    Sweep.create(out, plan(complete(asked)[0]), ["rlbench"], planned)
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    with pytest.raises(ValueError, match=r"planned inside a Slurm allocation; .* \(salloc\)"):
        run_sweep(RunOptions(), out, resume=True, dry_run=True, command=[])
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n")
    monkeypatch.setattr("rlbench.harness.launch.launcher.allocated_hosts", lambda _: ("n7", "n8"))
    assert run_sweep(RunOptions(), out, resume=True, dry_run=True, command=[]) == 0
    monkeypatch.setattr("rlbench.harness.launch.launcher.allocated_hosts", lambda _: ("n7",))
    with pytest.raises(ValueError, match="needs 2 hosts of 4 GPUs"):
        run_sweep(RunOptions(), out, resume=True, dry_run=True, command=[])


def test_torchruns_store_listens_at_one_address(tmp_path: Path) -> None:
    """Under torchrun as anybody would start it: two agents meet, and nothing listens elsewhere."""
    with socket.create_server(("127.0.0.2", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "meet.py").write_text(
        "import os, time, torch.distributed as d\n"
        "d.init_process_group('gloo')\n"
        "print('rank', os.environ['RANK'], 'of', d.get_world_size(), flush=True)\n"
        "d.barrier()\n"
        f"open(r'{tmp_path}/up-' + os.environ['RANK'], 'w').close()\n"
        f"while not os.path.exists(r'{tmp_path}/seen'): time.sleep(0.05)\n"
    )
    agents = []
    for node in (0, 1):
        words = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
        words += ["--rdzv-backend=rlbench", f"--rdzv-endpoint=127.0.0.2:{port}", f"--rdzv-conf=rank={node}"]
        variables = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
        agents.append(
            subprocess.Popen([*words, str(tmp_path / "meet.py")], stdout=subprocess.PIPE, text=True, env=variables)
        )
    wait_until(lambda: len(list(tmp_path.glob("up-*"))) == 2 or any(agent.poll() for agent in agents), "both are up")
    assert all(agent.poll() is None for agent in agents)
    listening = {
        connection.laddr.ip
        for agent in agents
        for one in [psutil.Process(agent.pid), *psutil.Process(agent.pid).children(recursive=True)]
        for connection in one.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    (tmp_path / "seen").touch()
    said = [agent.communicate(timeout=PATIENCE_S)[0].strip() for agent in agents]
    assert said == ["rank 0 of 2", "rank 1 of 2"]
    assert "127.0.0.2" in listening
    assert listening <= {"127.0.0.1", "127.0.0.2"}
