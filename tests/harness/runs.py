"""Real sweeps for tests: `rlbench run` as a process, and what can be seen of it from outside.

Every process of a sweep inherits one environment variable of its own, by which `processes` finds it, whoever its
parent is by then. A test waits for what it can see (a folder, a counter in a meter), never for a time.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Self

import psutil
import pytest

from rlbench.harness.metering.meter_file import MeterFile, meter_path
from rlbench.harness.plan import registry
from rlbench.harness.plan.options import RunOptions
from rlbench.harness.plan.planning import plan
from rlbench.harness.plan.request import complete
from rlbench.harness.processes import process
from rlbench.harness.run.sweep import Sweep
from tests.harness import faulty_scenario

RLBENCH = Path(sys.executable).with_name("rlbench")
MARK = "RLBENCH_TEST_SWEEP"
ZYGOTE = "rlbench.harness.run.zygote"
PATIENCE_S = 120.0
"""What has not happened by then, on however slow a machine, does not happen."""
END_LIMIT_S = 30.0
"""A run with a dead process ends within so long."""
FAULTY_SWEEP = ("--device", "cpu", "--systems", "sync", "--until", "return>=1")


def wait_until(holds: Callable[[], Any], what: str) -> None:
    """Returns when `holds()` is true; raises AssertionError when it does not come true."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(0.02)


def has_ended(one: psutil.Process) -> bool:
    """Whether a process is gone, or waits to be taken away."""
    with suppress(psutil.NoSuchProcess):
        return one.status() == psutil.STATUS_ZOMBIE
    return True


def stop(one: psutil.Process) -> None:
    """Stops a process while it waits: the stack of one that is between two frames may lack the outer ones."""

    def is_stopped_in_a_call() -> bool:
        if one.status() != psutil.STATUS_SLEEPING:
            return False
        one.send_signal(signal.SIGSTOP)
        wait_until(lambda: one.status() == psutil.STATUS_STOPPED, f"{one} is stopped")
        if Path(f"/proc/{one.pid}/syscall").read_text(encoding="ascii").split()[0] != "-1":
            return True
        one.send_signal(signal.SIGCONT)  # it had gone on before it was stopped
        return False

    wait_until(is_stopped_in_a_call, f"{one} waits")


def install_faulty(site: Path) -> None:
    """Makes `site` a folder with an installed distribution, as pip would, that adds the scenario family `faulty`."""
    install_family(site, "faulty", Path(faulty_scenario.__file__))


def install_family(site: Path, name: str, source: Path, module: str = "") -> None:
    """Makes `site` a folder with an installed distribution that adds the scenario family `name`.

    `source`: a file, or the folder of a package, one `module` of which has the family.
    """
    info = site / f"{source.stem}-1.0.dist-info"
    info.mkdir(parents=True)
    if module:
        shutil.copytree(source, site / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        (site / source.name).write_bytes(source.read_bytes())
    about = f"Metadata-Version: 2.1\nName: {source.stem.replace('_', '-')}\nVersion: 1.0\n"
    (info / "METADATA").write_text(about, encoding="utf-8")
    where = ".".join(filter(None, (source.stem, module)))
    (info / "entry_points.txt").write_text(f"[rlbench.scenarios]\n{name} = {where}:FAMILY\n", encoding="utf-8")


@contextmanager
def installed(site: Path) -> Iterator[None]:
    """What is installed in `site` can be planned in this process too, as long as it is asked for."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(site))
        # The registry remembers what a function has found.
        patched.setattr(registry, "entry_points", lambda group: entry_points(group=group))
        yield


def plan_sweep(folder: Path, *several: RunOptions) -> None:
    """Plans a sweep of all cells that are asked for, which `RunningSweep(folder, "--resume")` runs then.

    They may be of systems, ranks and limits that no options of one command give. `folder` is of `RunningSweep`, with
    what is to be installed in its `site/`.
    """
    with installed(folder / "site"):
        cells = [cell for asked in several for cell in plan(complete(asked)[0])]
    Sweep.create(folder / "runs", cells, ["rlbench", "run"])


class RunningSweep:
    """A `rlbench run` in a session of its own, with `faulty` installed; as a context, it is killed at the end."""

    def __init__(self, folder: Path, *options: str, wrapper: Sequence[str] = (), seen_at: Path = Path("/")) -> None:
        """`folder` holds everything: runs in `runs/`, output, the installed scenario; it may be of an earlier sweep.

        `wrapper`: a command that the sweep is given to. `seen_at`: the root of the file system that the sweep sees.
        """
        self.folder, self.out = folder, seen_at / (folder / "runs").relative_to("/")
        self.mark = secrets.token_hex(8)
        site, self.scratch = folder / "site", folder / "t"
        self.scratch.mkdir(exist_ok=True)
        if not site.exists():
            install_faulty(site)
        variables = {
            MARK: self.mark,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")])),
            "TMPDIR": str(self.scratch),
            "FAULTY_RELEASE": str(folder),
            "COLUMNS": "300",
        }
        self._stdout, self._stderr = folder / f"{self.mark}.out", folder / f"{self.mark}.err"
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                [*wrapper, str(RLBENCH), "run", "--out", str(folder / "runs"), *options],
                cwd=folder,
                env=os.environ | variables,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends what is left; a test that passed has left nothing."""
        self.process.kill()
        self.process.wait()
        psutil.wait_procs(self.processes(), timeout=END_LIMIT_S)  # the keeper removes what they share
        for left in self.processes():
            with suppress(psutil.NoSuchProcess):
                left.kill()

    def release(self, tag: str) -> None:
        """Lets the episodes of `faulty/patient:tag=...` succeed from now on, so that the run ends."""
        (self.folder / f"release-{tag}").touch()

    @property
    def stdout(self) -> str:
        """What it has printed."""
        return self._stdout.read_text()

    @property
    def stderr(self) -> str:
        """What it has printed there; with it, what is said of it in a failed test."""
        return self._stderr.read_text()

    def end(self, num_cells: int = 1) -> int:
        """Waits for its end, which so many cells are away; returns the exit code."""
        return self.process.wait(PATIENCE_S * num_cells)

    def processes(self) -> list[psutil.Process]:
        """All of its processes that live, in no order."""
        mark, found = f"{MARK}={self.mark}".encode(), []
        for pid in psutil.pids():
            with suppress(OSError, psutil.NoSuchProcess):  # most are not: what is asked of all is asked cheaply
                if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    found.append(psutil.Process(pid))  # anew: psutil keeps what it was called before it called exec
        return found

    def of_runs(self) -> list[psutil.Process]:
        """Those that are of a run: all but the command itself, and what it has runs forked from."""
        return [one for one in self.processes() if one.pid != self.process.pid and ZYGOTE not in _command(one)]

    def of_module(self, module: str) -> list[psutil.Process]:
        """Its processes that run a module of ours, such as `harness.run.keeper`, in no order.

        Not what one of them has just forked, which is called like it for a moment.
        """
        found = {one.pid: one for one in self.processes() if module in _command(one)}
        return [one for one in found.values() if _parent_of(one) not in found]

    def ranks(self) -> dict[int, psutil.Process]:
        """Its ranks by number, those that are called so yet: the second may be before the first."""
        numbered = [(_rank_of(one), one) for one in self.of_module("rlbench.harness.launch.rank")]
        return {rank: one for rank, one in numbered if rank is not None}

    def of_program(self, name: str) -> list[psutil.Process]:
        """Its processes that run a program of that name."""
        return [one for one in self.processes() if Path(next(iter(_command(one)), "")).name == name]

    def fork_server(self, rank: int) -> psutil.Process:
        """The fork server of a rank."""
        children = self.ranks()[rank].children()
        return next(child for child in children if any("forkserver" in word for word in _command(child)))

    def partial(self, number: int) -> Path | None:
        """The working folder of the run of cell `number`, from 1, while there is one."""
        return next(self.out.glob(f"*/.partial-{number:03d}-*"), None)

    def meters(self, number: int, num_ranks: int) -> list[MeterFile]:
        """The meters of the ranks of a cell that is running; [] before all have one."""
        folder = self.partial(number)
        paths = [meter_path(folder, rank) for rank in range(num_ranks)] if folder else []
        try:
            return [MeterFile(path, writable=False) for path in paths]
        except FileNotFoundError:  # not yet, or it is of a run that was killed, and just removed
            return []

    def files_left(self) -> list[Path]:
        """Working folders of runs, and temporary files."""
        return [*self.out.glob("*/.partial-*"), *self.scratch.iterdir()]

    def wait_collecting(self, number: int, num_ranks: int = 1) -> Path:
        """Waits until every environment of a cell has stepped; returns the run's working folder."""

        def collects() -> bool:
            assert self.process.poll() is None, f"it has ended: {self.stdout}{self.stderr}"
            meters = self.meters(number, num_ranks)
            counts = [meter.count(1 + env, "env_steps") for meter in meters for env in range(meter.num_envs)]
            if not counts or min(counts) == 0:
                return False
            ranks = {
                rank.pid for rank in self.of_module("rlbench.harness.launch.rank")
            }  # others are of what a killed sweep has left
            return {meter.count(0, "pid") for meter in meters} <= ranks

        wait_until(collects, f"cell {number} collects")
        folder = self.partial(number)
        assert folder is not None
        return folder

    def worker(self, number: int, rank: int, env: int, num_ranks: int = 1) -> psutil.Process:
        """The environment worker of a rank that steps environment `env`."""
        return psutil.Process(self.meters(number, num_ranks)[rank].count(1 + env, "pid"))

    def wait_published(self, number: int) -> dict[str, Any]:
        """Waits for the run folder of a cell; returns its record."""
        wait_until(lambda: self.runs(number), f"cell {number} has a run folder: {self.stdout}{self.stderr}")
        return self.runs(number)[-1]

    def runs(self, number: int) -> list[dict[str, Any]]:
        """The records of a cell's runs, in the order of their names, each with its `path`."""
        paths = sorted(self.out.glob(f"*/{number:03d}-*"))
        return [{**json.loads((path / "run.json").read_text()), "path": path} for path in paths]

    def kill(self, victim: psutil.Process, number: int, named: int = signal.SIGKILL) -> float:
        """Kills one process; returns the seconds until all processes of that run are gone, PATIENCE_S if never."""
        of_run = [one for one in self.of_runs() if one != victim]
        assert self.partial(number) is not None
        began = time.monotonic()
        victim.send_signal(named)
        _, alive = psutil.wait_procs([*of_run, victim], timeout=PATIENCE_S)
        assert not alive, f"still there: {alive}"
        return time.monotonic() - began

    def shared_memory(self) -> set[str]:
        """Names in /dev/shm that its processes have mapped now."""
        names: set[str] = set()
        for one in self.processes():
            with suppress(OSError):
                names.update(process.shared_memory_names(one.pid))
        return names


def _parent_of(one: psutil.Process) -> int | None:
    with suppress(psutil.Error):
        return one.ppid()
    return None


def _rank_of(one: psutil.Process) -> int | None:
    """The last word of its command line; None where it has ended, or that line is being written."""
    last = next((word for word in reversed(_command(one)) if word), "")
    return int(last) if last.isdigit() else None


def _command(one: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return one.cmdline()
    return []
