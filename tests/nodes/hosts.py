"""Two hosts on this machine: network namespaces with a link between them, which can be made slow.

A quick link is a veth pair. A slow one is a TUN device in each namespace and a process between them that hands packets
over: each waits until the link is free (bytes / bandwidth) and then for the link's delay, as `tc netem` would have it,
a module that not every kernel has. Needs root.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

INTERFACE = "eth0"
ADDRESSES = ("10.77.0.1", "10.77.0.2")
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
SLOW_MTU = 9000
REMOTE = "ip netns exec {host}"


@dataclass(frozen=True, slots=True)
class TwoHosts:
    """Their names."""

    names: tuple[str, str]

    def run(self, host: int, *words: str, **options: object) -> subprocess.CompletedProcess[str]:
        """Runs a command on a host."""
        command = ["ip", "netns", "exec", self.names[host], *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload,no-any-return]

    def start(self, host: int, *words: str, **options: object) -> subprocess.Popen[str]:
        """Starts a command on a host."""
        command = ["ip", "netns", "exec", self.names[host], *words]
        return subprocess.Popen(command, text=True, **options)  # type: ignore[call-overload,no-any-return]

    def processes(self, host: int) -> list[psutil.Process]:
        """Those that are on a host."""
        inode = Path(f"/run/netns/{self.names[host]}").stat().st_ino
        found = []
        for one in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if Path(f"/proc/{one.pid}/ns/net").stat().st_ino == inode:
                    found.append(one)
        return found

    def listening(self, host: int) -> set[str]:
        """Addresses that something listens on."""
        lines = self.run(host, "ss", "--no-header", "--listening", "--tcp", "--numeric").stdout.splitlines()
        return {line.split()[3].rpartition(":")[0] for line in lines}

    def ports(self, host: int, pid: int) -> set[int]:
        """Ports that a process listens on."""
        lines = self.run(
            host, "ss", "--no-header", "--listening", "--tcp", "--numeric", "--processes"
        ).stdout.splitlines()
        return {int(line.split()[3].rpartition(":")[2]) for line in lines if f"pid={pid}," in line}

    @property
    def options(self) -> list[str]:
        """Of `rlbench run` on the first host."""
        hosts = ",".join(self.names)
        return ["--launcher", "torchrun", "--hosts", hosts, "--interface", INTERFACE, "--remote", REMOTE]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def two_hosts(delay_s: float = 0.0, bytes_per_s: float = 0.0) -> Iterator[TwoHosts]:
    """Makes the hosts and the link; in the end kills what is still on them. Without a delay the link is quick."""
    tag = f"{os.getpid() % 100000}"
    hosts = TwoHosts((f"rlb{tag}a", f"rlb{tag}b"))
    link: subprocess.Popen[bytes] | None = None
    for name in hosts.names:
        _ip("netns", "add", name)
    try:
        if delay_s:
            words = [sys.executable, __file__, *hosts.names, str(delay_s), str(bytes_per_s)]
            link = subprocess.Popen(words, stdout=subprocess.PIPE)
            assert link.stdout is not None
            assert link.stdout.readline() == b"up\n"
        else:
            veths = [f"rlv{tag}{end}" for end in "ab"]
            _ip("link", "add", veths[0], "type", "veth", "peer", "name", veths[1])
            for name, veth in zip(hosts.names, veths, strict=True):
                _ip("link", "set", veth, "netns", name, "name", INTERFACE)
        for name, address, peer in zip(hosts.names, ADDRESSES, reversed(ADDRESSES), strict=True):
            _ip("-n", name, "addr", "add", address, "peer", peer, "dev", INTERFACE)
            for device in (INTERFACE, "lo"):
                _ip("-n", name, "link", "set", device, "up")
        yield hosts
    finally:
        for host, name in enumerate(hosts.names):
            for one in hosts.processes(host):
                with suppress(psutil.Error):
                    one.kill()
            _ip("netns", "del", name)
        if link is not None:
            link.kill()
            link.communicate()


def _open_tun(namespace: str) -> int:
    """A TUN device in a namespace, for this process, which is in another."""
    here = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    _setns(there)
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", INTERFACE.encode(), IFF_TUN | IFF_NO_PI))
    subprocess.run(["ip", "link", "set", INTERFACE, "mtu", str(SLOW_MTU)], check=True)
    _setns(here)
    os.close(here)
    os.close(there)
    return tun


def _setns(fd: int) -> None:
    """Enters a network namespace; Python has `os.setns` from 3.12 on."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def hand_over(namespaces: tuple[str, str], delay_s: float, bytes_per_s: float) -> None:
    """Hands packets over in both directions, for ever."""
    tuns = [_open_tun(name) for name in namespaces]
    sys.stdout.write("up\n")
    sys.stdout.flush()
    free_at = [0.0, 0.0]
    waiting: list[tuple[float, int, int, bytes]] = []
    number = 0
    while True:
        left_s = max(0.0, waiting[0][0] - time.perf_counter()) if waiting else 1.0
        # `select` sleeps too long by its slack: the last 50 us are spun away.
        ready = select.select(tuns, [], [], max(0.0, left_s - 5e-5))[0]
        now = time.perf_counter()
        for source in ready:
            side = tuns.index(source)
            for _ in range(16):
                try:
                    packet = os.read(source, SLOW_MTU)
                except (BlockingIOError, OSError):
                    break
                free_at[side] = max(now, free_at[side]) + len(packet) / bytes_per_s
                number += 1
                heapq.heappush(waiting, (free_at[side] + delay_s, number, 1 - side, packet))
        while waiting and waiting[0][0] <= time.perf_counter():
            _, _, side, packet = heapq.heappop(waiting)
            with suppress(OSError):  # the other device may be down by now
                os.write(tuns[side], packet)


if __name__ == "__main__":
    hand_over((sys.argv[1], sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
