"""A user's own trainer as a system: a command that a file describes, started, watched, counted and ended.

Each rank runs one loop. It starts the command (with `ranks = "its own"` only rank 0 does), reads several times a second
what the trainer's processes have counted, and moves that into its meter, so whatever watches or records a run sees what
it would see of our own systems. The loop ends when the command ends, the budget is spent, something is wrong, or
another rank has written the file `ENDED` to the folder that all ranks share; a command that fails after that is no
failure. Then the rank kills all processes of the trainer and, if nothing was wrong, reads their files once more.
"""

from __future__ import annotations

import os
import socket
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rlbench_client
from rlbench.harness.contract.agents import agents_per_env
from rlbench.harness.contract.budget import LARGEST, Progress
from rlbench.harness.contract.device import RANK_VARIABLES
from rlbench.harness.processes.process import STORE_VARIABLE, how_it_ended
from rlbench.systems.external import document
from rlbench.systems.external.child import MIB, Child, TrainerFailed
from rlbench.systems.external.counts import Change, CounterFiles, Relay
from rlbench.systems.external.document import Trainer, fill
from rlbench_client.counters import FOLDER_VARIABLE
from rlbench_client.given import PACKAGES_VARIABLE, RUN_VARIABLE, STILL_VARIABLE, python_version

if TYPE_CHECKING:
    from rlbench.harness.contract.scenario import Scenario
    from rlbench.harness.contract.system import Context

LOOK_S = 0.2
COUNT_EVERY_S = 1.0
"""Seconds between two counts of the trainer's processes; asking the kernel for all of them costs milliseconds."""
SLICE_S = 1.0
"""Shortest part of the series, in seconds, where the trainer reports no iterations; see `TrainerRun._ends_row`."""
ITS_OWN = frozenset({"learn", "policy", "num_envs", "rollout_steps", "gpu_costs"})
SCENARIOS = "rlbench.scenarios"
"""The entry points of scenarios."""
ENDED, PORT = "rlbench-ended", "rlbench-port"
"""Files in the folder that all ranks share: how the trainer ended, and the port at which its ranks meet."""
BY_BUDGET, BY_ITSELF = "by its budget", "by itself"


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A trainer under test."""

    name: str
    about: str
    trainer: Trainer
    in_step = False
    one_machine = True
    devices = ("cpu", "cuda")

    @property
    def python(self) -> str:
        """The trainer's interpreter."""
        return self.trainer.python

    def known_work(self, scenario: Mapping[str, Any]) -> Mapping[str, Any]:
        """The part of a recorded scenario that is known to hold for this trainer.

        The trainer chooses how it learns, its network and its number of environments, so comparisons of runs treat
        them as not recorded. If it also makes its own environments, they treat all of the work as not recorded.
        """
        if self.trainer.environment == "instrumented":
            return {}
        return {name: value for name, value in scenario.items() if name not in ITS_OWN}

    def check(self, scenario: Scenario) -> Scenario:
        """The same scenario. Raises ValueError if the trainer is to make environments with several agents."""
        agents = agents_per_env(scenario)
        if self.trainer.environment == "ours" and agents > 1:
            rule = f"makes rlbench's environments with one agent each, not with {agents}"
            raise ValueError(f"{self.name} on {scenario.name}: {rule}; use sync, ver or appo")
        return scenario

    def run(self, context: Context) -> None:
        """Runs the trainer on this rank until the budget is spent or the trainer ends."""
        TrainerRun(self.trainer, context).to_end()


class TrainerRun:
    """One rank's run of a trainer."""

    def __init__(self, trainer: Trainer, context: Context) -> None:
        self._trainer, self._context, self._meter = trainer, context, context.meter
        self._rank, self._num_ranks = context.place.rank, context.place.num_ranks
        self._shared = Path(tempfile.gettempdir())  # one folder for the run, the same for all ranks
        self._counters = self._shared / "counters"
        self._counters.mkdir(exist_ok=True)
        self._files = CounterFiles(self._counters)
        self._relay = Relay(context.meter, Path(context.folder), self._num_ranks)
        self._has_begun = self._has_rows = False
        self._row_began = self._moved_at = time.perf_counter()
        self._next_count = 0.0

    def to_end(self) -> None:
        """Starts, watches and ends the trainer. Raises TrainerFailed or BadCounters."""
        self._say_what_is_reported()
        child = self._start()
        problem: str | None = None
        try:
            problem = self._watch(child)
            if self._trainer.ranks == "ours" and child is not None and child.returncode is None:
                self._say_ended(BY_BUDGET)  # first, so that the others may fail when it is killed
        finally:
            if child is not None and problem is not None:
                child.leave_stacks(Path(self._context.folder))
            if child is not None:
                child.end(f"trainer-{self._rank}")
        if child is not None and problem is not None:
            raise child.failure(problem)
        if self._trainer.ranks == "its own" and child is not None:
            self._say_ended(BY_ITSELF if child.returncode == 0 else BY_BUDGET)  # no process of it counts now
        self._look()
        if not self._has_rows and self._relay.env_steps:
            self._end_row()  # the only part of a short run; in others an unfinished part is in the counters alone
        self._say_what_is_reported(has_finished=self._has_finished(child))
        self._relay.close()
        if child is not None and not self._files.total("env_steps"):
            how = how_it_ended(child.returncode or 0)
            raise child.failure(
                f"its command {how} and counted no env step: wrap its environments, see docs/external.md"
            )

    def _has_finished(self, child: Child | None) -> bool:
        """Whether the trainer, or this rank's part of it, ended by itself."""
        if child is None:
            return self._ended() == BY_ITSELF
        return child.returncode == 0

    def _watch(self, child: Child | None) -> str | None:
        """Blocks until the run is over; returns what went wrong, or None."""
        while True:
            if child is None:
                time.sleep(LOOK_S)
            elif child.wait(LOOK_S):
                self._look()
                code = child.returncode or 0
                return f"its command {how_it_ended(code)}" if code and not self._ended() else None
            self._look()
            if self._ended() or (child is not None and self._is_spent()):
                return None
            if child is not None and (problem := self._trouble(child)):
                return problem

    def _look(self) -> None:
        changes = self._files.look()
        self._relay.move(changes)
        now = time.perf_counter()
        if any(change.counts["env_steps"] or change.counts["learned"] for change in changes):
            self._moved_at = now
        if not self._has_begun and self._files.total("env_steps"):
            self._has_begun = True
            self._meter.begin()
            self._row_began = now
            self._relay.env_steps = 0
            self._relay.span_s.clear()
        self._say_what_is_reported()
        if self._has_begun and self._ends_row(changes, now - self._row_began):
            self._end_row()

    def _ends_row(self, changes: list[Change], lasted_s: float) -> bool:
        """Whether a part of the series ends now: at an iteration, else at a learning phase or env step after `SLICE_S`.

        A rank that stands still ends no part, so whoever watches the run sees that it stands still.
        """
        own = [change.counts for change in changes if self._relay.is_own(change)]
        if self._files.is_reported("iterations"):
            return any(counts["iterations"] for counts in own)
        name = "learned" if self._files.is_reported("learned") else "env_steps"
        return lasted_s >= SLICE_S and any(counts[name] for counts in own)

    def _end_row(self) -> None:
        relay, now = self._relay, time.perf_counter()
        self._meter.end_iteration(self._files.metrics(), elsewhere_s=relay.take_spans(now - self._row_began))
        relay.env_steps = 0
        self._row_began, self._has_rows = now, True

    def _is_spent(self) -> bool:
        if not self._has_begun:
            return False
        files = self._files
        return self._context.budget.is_spent(
            Progress(
                iterations=files.iterations,
                env_steps=files.total("learned" if files.is_reported("learned") else "env_steps"),
                seconds=self._meter.elapsed_s,
                metrics=files.metrics(),
            )
        )

    def _trouble(self, child: Child) -> str | None:
        """Why the trainer must be ended although its command still runs, or None."""
        now, stall_s = time.perf_counter(), self._context.stall_s
        if child.has_raised and now - self._moved_at > stall_s:
            return f"nothing was stepped or learned for {stall_s:g} s (--stall) after it had raised"
        budget = self._context.budget
        only_iterations = (budget.seconds, budget.env_steps, budget.until) == (None, None, None)
        if self._has_begun and only_iterations and not self._files.iterations and self._meter.elapsed_s > stall_s:
            return (
                f"--iterations {budget.iterations}: it reported no iteration in {stall_s:g} s (--stall): it must call "
                "rlbench_client.iteration(), or give --seconds or --env-steps"
            )
        if now >= self._next_count:
            self._next_count = now + COUNT_EVERY_S
            most, num = self._trainer.limits.processes, child.num_processes()
            if num > most:
                return f"it had {num:,} processes, more than {most:,} (limits.processes)"
        return None

    def _say_what_is_reported(self, *, has_finished: bool = False) -> None:
        """Tells the meter what the trainer reports; what was in flight is known only if it ended by itself."""
        names = {"learned", "reused", "discarded", "lag_sum"} | ({"in_flight"} if has_finished else set())
        self._meter.reports({name for name in names if self._files.is_reported(name)})
        self._meter.in_flight(self._relay.in_flight if has_finished else 0)

    def _ended(self) -> str:
        """How the trainer ended, as a rank has written it; empty while none has."""
        path = self._shared / ENDED
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def _say_ended(self, how: str) -> None:
        unfinished = self._shared / f"{ENDED}-{self._rank}"
        unfinished.write_text(how, encoding="utf-8")
        unfinished.rename(self._shared / ENDED)

    def _start(self) -> Child | None:
        trainer = self._trainer
        if trainer.ranks == "its own" and self._rank:
            return None
        values, variables = self._values(), dict(os.environ)
        for name in (STORE_VARIABLE, STILL_VARIABLE, "RLBENCH_PARENT"):
            variables.pop(name, None)
        if trainer.ranks == "its own":
            for name in (*RANK_VARIABLES, "LOCAL_WORLD_SIZE"):
                variables.pop(name, None)
        else:
            variables["MASTER_PORT"] = str(self._port())
        variables |= {name: fill(value, values) for name, value in trainer.variables.items()}
        variables |= {
            "PATH": trainer.search_path,
            "PYTHONPATH": os.pathsep.join(filter(None, [self._client(), variables.get("PYTHONPATH", "")])),
            FOLDER_VARIABLE: str(self._counters),
            RUN_VARIABLE: str(Path(self._context.folder).resolve()),
        }
        if self._meter.still:
            variables[STILL_VARIABLE] = "1"
        if trainer.environment == "ours":
            folders = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
            variables[PACKAGES_VARIABLE] = os.pathsep.join((python_version(), *folders))
        command = [fill(word, values) for word in trainer.command]
        return Child(command, trainer.folder, variables, int(trainer.limits.output_mib * MIB))

    def _values(self) -> Mapping[str, str]:
        context, limits = self._context, self._context.budget
        values: dict[str, Any] = {
            "gpus": self._num_ranks,
            "rank": self._rank,
            "device": context.device.torch_name,
            "seed": context.seed,
            "scenario": context.scenario.name,
            "workload": context.scenario.workload,
            "num_envs": context.scenario.num_envs,
            "rollout_steps": context.scenario.rollout_steps,
            "seconds": LARGEST if limits.seconds is None else limits.seconds,
            "env_steps": int(limits.env_steps or LARGEST),
            "iterations": int(limits.iterations or LARGEST),
            "python": self._trainer.python,
            "env": "rlbench_client.ids:rlbench-v0",
            "env_box": "rlbench_client.ids:rlbench-box-v0",
            "folder": self._shared,
        }
        return {name: f"{value:.12g}" if isinstance(value, float) else str(value) for name, value in values.items()}

    def _client(self) -> str:
        """Makes a folder that any interpreter can import from: the client, and what makes our environments if used."""
        folder, ours = self._shared / f"client-{self._rank}", Path(rlbench_client.__file__).parents[1]
        folder.mkdir()
        (folder / "rlbench_client").symlink_to(ours / "rlbench_client")
        if self._trainer.environment == "ours":
            (folder / "rlbench").symlink_to(ours / "rlbench")
            write_distribution(folder)
        return str(folder)

    def _port(self) -> int:
        """A free port for the trainer's own store. Rank 0 finds it; the others wait for it, at most `stall_s`."""
        path, deadline = self._shared / PORT, time.monotonic() + self._context.stall_s
        if self._rank == 0:
            with socket.create_server((os.environ["MASTER_ADDR"], 0)) as free:
                port = int(free.getsockname()[1])
            unfinished = path.with_suffix(".new")
            unfinished.write_text(str(port), encoding="utf-8")
            unfinished.rename(path)
        while not path.exists():
            if time.monotonic() > deadline:
                raise TrainerFailed(f"rank 0 has found no port within {self._context.stall_s:g} s (--stall)")
            time.sleep(0.02)
        return int(path.read_text(encoding="utf-8"))


def write_distribution(folder: Path) -> None:
    """Lets an interpreter without rlbench find scenarios by name, as one with rlbench does."""
    about = folder / f"rlbench-{metadata.version('rlbench')}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: rlbench\nVersion: {metadata.version('rlbench')}\n", encoding="utf-8"
    )
    points = {point.name: point.value for point in metadata.entry_points(group=SCENARIOS)}
    lines = [f"[{SCENARIOS}]", *(f"{name} = {value}" for name, value in points.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


class TomlFiles:
    """Makes systems of TOML files; see `harness.plan.registry.SystemFiles`."""

    def read(self, path: Path) -> dict[str, Any]:
        """Reads a file; checks its fields and makes its paths absolute."""
        return document.read(path).model_dump(mode="json")

    def make(self, name: str, said: Mapping[str, Any]) -> Command:
        """Makes the system of that name from what its file says."""
        trainer = Trainer.model_validate(said)
        return Command(name=name, about=trainer.about, trainer=trainer)


FILES = TomlFiles()
