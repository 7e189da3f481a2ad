"""Which machine each rank of a run is on, and what the runner, the head and the agents must know of each other.

A *node* is a machine of a run. Rank r is on node r // G, where G is the number of GPUs (ranks) of a node.
"""

from __future__ import annotations

import ipaddress
import json
import re
import shlex
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

LAUNCH_FILE = "launch.json"
"""In the working folder of a run on several machines; the runner writes it, the head reads it."""
SEAT_FILE = "node.json"
"""In the working folder of a node; the agent writes it, the keeper reads it."""
SSH = "ssh -o BatchMode=yes -o ServerAliveInterval=3 -o ServerAliveCountMax=2 {host}"
SRUN = "srun --overlap --nodes=1 --ntasks=1 --nodelist={host}"
"""How a step of a Slurm allocation runs a command on one of its nodes."""
HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.:-]{0,252}[A-Za-z0-9_])?")
MOST_HOSTS = 1024
HARMLESS = {"partition", "account", "qos", "constraint", "time", "reservation"}
"""Options of sbatch that say where and how long, and nothing else."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """How the runs of a sweep are spread over machines."""

    hosts: tuple[str, ...]
    """Host names as `remote` takes them; the first is node 0."""
    gpus_per_node: int
    """G."""
    interface: str = ""
    """Network interface, the same on all hosts, that everything listens on; empty: the one that leads to the others."""
    remote: str = SSH
    """The command that runs another command on `{host}`."""
    oversubscribe: bool = False
    """Whether ranks may share a GPU where a host has fewer GPUs than ranks."""

    def __post_init__(self) -> None:
        """Checks every field once."""
        if not 1 <= len(self.hosts) <= MOST_HOSTS or len(set(self.hosts)) != len(self.hosts):
            raise ValueError(f"--hosts: must be 1 to {MOST_HOSTS:,} different hosts")
        if wrong := next((host for host in self.hosts if not HOST.fullmatch(host)), None):
            raise ValueError(f"--hosts: {wrong!r} is no name of a host")
        if self.gpus_per_node < 1:
            raise ValueError(f"--gpus-per-node {self.gpus_per_node}: must be at least 1")
        if "{host}" not in self.remote:
            raise ValueError(f"--remote {self.remote!r}: must hold {{host}}, such as 'ssh {{host}}'")
        try:
            shlex.split(self.remote)
        except ValueError as error:
            raise ValueError(f"--remote {self.remote!r}: {error}") from None

    @property
    def is_usual(self) -> bool:
        """Whether hosts are reached by a default command, so that a plan brings no command of its own."""
        return self.remote in {SSH, SRUN}

    def num_nodes(self, gpus: int) -> int:
        """Number of nodes that a run with `gpus` ranks needs. Raises ValueError when there are fewer hosts."""
        nodes = -(-gpus // self.gpus_per_node)
        if nodes > len(self.hosts):
            raise ValueError(
                f"--gpus {gpus}: needs {nodes} hosts of {self.gpus_per_node} GPUs, and --hosts names {len(self.hosts)}"
            )
        return nodes

    def ranks_of(self, node: int, gpus: int) -> range:
        """The ranks on a node, in a run with `gpus` ranks."""
        return range(node * self.gpus_per_node, min(gpus, (node + 1) * self.gpus_per_node))

    def command(self, node: int, words: Sequence[str]) -> list[str]:
        """The command that runs `words` on a node; ssh gives them to a shell there, so they are quoted for it."""
        remote = [word.replace("{host}", self.hosts[node]) for word in shlex.split(self.remote)]
        return [*remote, *(map(shlex.quote, words) if Path(remote[0]).name == "ssh" else words)]

    def leave(self, folder: Path) -> None:
        """Writes it for the head."""
        (folder / LAUNCH_FILE).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Launch | None:
        """Reads back what `leave` wrote; None for a run on this machine alone."""
        path = folder / LAUNCH_FILE
        return cls.of(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None

    @classmethod
    def of(cls, fields: dict[str, object]) -> Launch:
        """Makes a launch from its fields as JSON holds them."""
        return cls(**{**fields, "hosts": tuple(fields["hosts"])})  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True, slots=True)
class Slurm:
    """How a sweep is given to Slurm."""

    gpus_per_node: int
    interface: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Options of sbatch by their names: `partition`, `account`, ..."""
    at_once: int = 0
    """Most jobs that run at the same time; 0 for as many as Slurm will."""
    one_allocation: bool = False
    """Whether one job runs all cells, one after the other."""
    oversubscribe: bool = False
    """Whether ranks may share a GPU where a node has fewer GPUs than ranks."""

    def __post_init__(self) -> None:
        """Checks every field once."""
        if self.gpus_per_node < 1:
            raise ValueError(f"--gpus-per-node {self.gpus_per_node}: must be at least 1")
        if not isinstance(self.settings, Mapping):
            raise ValueError("--slurm: must be options of sbatch, such as account=lab,qos=high")  # noqa: TRY004  a plan's
        for name, value in self.settings.items():
            # Each becomes a line of a shell script.
            if not re.fullmatch(r"[a-z][a-z-]*", name) or not (isinstance(value, str) and value.isprintable()):
                raise ValueError(f"--slurm {name}={value!r}: must be options of sbatch, such as account=lab,qos=high")
        if self.at_once < 0:
            raise ValueError(f"--at-once {self.at_once}: must be at least 0; 0 is as many as Slurm will")

    @property
    def is_usual(self) -> bool:
        """Whether a plan, which may be somebody else's, asks only for a place in the queue: no variable, no file."""
        return all(
            name in HARMLESS and re.fullmatch(r"[\w.:@+-]*", value) is not None for name, value in self.settings.items()
        )

    def num_nodes(self, gpus: int) -> int:
        """Number of nodes that a run with `gpus` ranks needs."""
        return -(-gpus // self.gpus_per_node)


def launch_of(fields: dict[str, Any] | None) -> Launch | Slurm | None:
    """Where the runs of a plan take place, from what the plan says in JSON; None: on this machine alone."""
    if fields is None:
        return None
    return Launch.of(fields) if "hosts" in fields else Slurm(**fields)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSeat:
    """What the keeper on a node must know to start the node's ranks."""

    node: int
    num_nodes: int
    first_rank: int
    num_local: int
    address: str
    """Address of node 0 at which the ranks' store listens."""
    port: int
    interface: str
    """Network interface of this node."""
    run_id: str

    @property
    def ranks(self) -> range:
        """The ranks of the node."""
        return range(self.first_rank, self.first_rank + self.num_local)

    def leave(self, folder: Path) -> None:
        """Writes it for the keeper."""
        (folder / SEAT_FILE).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> NodeSeat | None:
        """Reads back what `leave` wrote; None for a run on this machine alone."""
        path = folder / SEAT_FILE
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def address_of(interface: str) -> str:
    """The address of a network interface of this machine, IPv4 if it has one.

    Raises ValueError, which lists the interfaces with an address, if this one has none.
    """
    found = {
        name: [one.address for family in (socket.AF_INET, socket.AF_INET6) for one in all_ if one.family == family]
        for name, all_ in psutil.net_if_addrs().items()
    }
    usable = {name: addresses for name, addresses in found.items() if addresses}
    if interface not in usable:
        raise ValueError(f"--interface {interface}: {socket.gethostname()} has {', '.join(sorted(usable))}")
    return usable[interface][0].partition("%")[0]


def listen(address: str) -> socket.socket:
    """A socket that listens on a free port of one address."""
    return socket.create_server(
        (address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET, backlog=1024
    )


def interface_towards(host: str) -> str:
    """The network interface that leads to another machine. Raises ValueError where none leads there."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # sends nothing; chooses the interface
            own = ipaddress.ip_address(str(probe.getsockname()[0]).partition("%")[0])
    except OSError as error:
        why = error.strerror or str(error)
        raise ValueError(f"--hosts: {host}: {why}; name the network interface with --interface") from None
    for name, addresses in psutil.net_if_addrs().items():
        for one in addresses:
            if one.family == family and ipaddress.ip_address(one.address.partition("%")[0]) == own:
                return name
    raise ValueError(f"--hosts: no network interface leads to {host}; name it with --interface")
