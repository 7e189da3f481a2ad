"""A real Slurm of two nodes on this machine: munged, slurmctld and two slurmd, with ports and folders of their own.

Needs root, and Debian's packages slurm-wlm and munge (`.ci/run` installs them). `stop` ends all that it started,
jobs first, and nothing of a Slurm that the machine may have besides: every process is known by its folder.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

NODES = ("na", "nb")
PARTITION = "gpu"
START_S, STOP_S = 30.0, 30.0
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=5
SlurmdTimeout=30
NodeName=na NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cores} RealMemory=1000 State=UNKNOWN
NodeName=nb NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs={cores} RealMemory=1000 State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName={partition} Nodes=na,nb Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=patient Nodes=na,nb MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=30
PartitionName=urgent Nodes=na,nb MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=OFF
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    """One that runs."""

    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        """Of a process that is to find it."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def ask(self, *words: str) -> str:
        """What one of Slurm's commands prints. Raises CalledProcessError."""
        done = subprocess.run(words, capture_output=True, text=True, check=True, env=self.variables)
        return done.stdout

    def jobs(self) -> dict[str, str]:
        """The states of the jobs that have not ended, by their ids."""
        lines = self.ask("squeue", "--noheader", "--array", "--format=%i|%T").split()
        return {job: state for job, _, state in (line.partition("|") for line in lines)}

    def restarts(self, job: str) -> int:
        """How often a job was requeued."""
        said = self.ask("scontrol", "--oneliner", "show", "job", job)
        return int(dict(word.split("=", 1) for word in said.split() if "=" in word)["Restarts"])

    def node_states(self) -> dict[str, str]:
        """The states of the nodes."""
        lines = self.ask("sinfo", "--noheader", "--Node", "--format=%N|%T").split()
        return {node: state for node, _, state in (line.partition("|") for line in lines)}

    def start_node(self, node: str) -> None:
        """Starts the slurmd of a node."""
        subprocess.run(["slurmd", "-N", node], check=True, env=self.variables)

    def kill_node(self, node: str) -> None:
        """Kills the slurmd of a node with all that it has started there, as when a machine goes down."""
        daemons = [one for one in self.processes() if f"-N {node}" in _line(one)]
        steps = [one for one in self.processes() if _node_of(one) == node]
        managers = {parent for one in steps if (parent := _parent_of(one)) and _line(parent).startswith("slurmstepd")}
        # Slurm's own first: they would still report how the others ended, which a machine that goes down does not.
        for one in (*daemons, *managers, *steps):
            with suppress(psutil.Error):
                one.kill()

    def processes(self) -> list[psutil.Process]:
        """All that belong to it, also what jobs have started."""
        conf = str(self.folder / "slurm.conf")
        found = []
        for one in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if one.environ().get("SLURM_CONF") == conf or str(self.folder) in _line(one):
                    found.append(one)
        return found

    def steps(self) -> list[psutil.Process]:
        """What jobs have started, on any node."""
        return [one for one in self.processes() if _node_of(one)]


def _line(one: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(one.cmdline())
    return ""


def _parent_of(one: psutil.Process) -> psutil.Process | None:
    with suppress(psutil.Error):
        return one.parent()
    return None


def _node_of(one: psutil.Process) -> str | None:
    with suppress(psutil.Error, OSError):
        return one.environ().get("SLURMD_NODENAME")
    return None


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Starts it, and waits until both nodes are idle; in the end stops it."""
    made = Cluster(folder)
    folder.chmod(0o755)
    (folder / "state").mkdir()
    (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
    (folder / "munge.key").chmod(0o400)
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(
            host=socket.gethostname(), folder=folder, ports=_free_ports(3), cores=os.cpu_count(), partition=PARTITION
        )
    )
    try:
        munge = ["munged", "--force", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.sock"]
        munge += [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")]
        subprocess.run(munge, check=True, env=made.variables)
        subprocess.run(["slurmctld"], check=True, env=made.variables)
        for node in NODES:
            made.start_node(node)
        _until(lambda: set(made.node_states().values()) == {"idle"}, START_S)
        yield made
    finally:
        _stop(made)


def _stop(made: Cluster) -> None:
    with suppress(subprocess.CalledProcessError):
        made.ask("scancel", "--user=root", "--full")
        with suppress(AssertionError):
            _until(lambda: not made.jobs(), STOP_S)
    for number in (signal.SIGTERM, signal.SIGKILL):
        left = made.processes()
        for one in left:
            with suppress(psutil.Error):
                one.send_signal(number)
        psutil.wait_procs(left, timeout=5)
    assert not made.processes()


def _until(holds: object, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while True:
        with suppress(subprocess.CalledProcessError):
            if holds():  # type: ignore[operator]
                return
        assert time.monotonic() < deadline, f"not within {limit_s:g} s"
        time.sleep(0.2)


def _free_ports(number: int) -> list[int]:
    """Below those that the kernel gives out: Slurm's daemons bind theirs only later."""
    found: list[int] = []
    while len(found) < number:
        port = 20_000 + secrets.randbelow(12_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found += [port] if port not in found else []
    return found
