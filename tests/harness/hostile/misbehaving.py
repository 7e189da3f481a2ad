"""Sweeps over environments that misbehave, and what is wrong with what they left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlbench.results.records import store
from rlbench.results.records.schema import RunRecord
from tests.harness.hostile import misbehaving_plugin
from tests.harness.hostile.misbehaving_plugin.cases import IN_RANK, Case
from tests.harness.runs import RunningSweep, install_family

STREAM = "rollout.num_steps=8:rollout.batch=16"
SYSTEMS = {
    name: f"{name}:{STREAM}" if name in {"appo", "impala"} else name
    for name in ("sync", "ddppo", "nover", "ver", "appo", "gossip", "htsrl", "impala", "easgd", "downpour")
}
NUM_RANKS = {"easgd": 2}
"""Of systems that run on more than one."""
NUM_ITERATIONS = 40
STALL_S = 20
BEFORE_STEPS = ("make-env", "first-reset", *IN_RANK)


def start(
    folder: Path, system: str, cases: Sequence[Case], num_ranks: int = 0, wrapper: Sequence[str] = ()
) -> RunningSweep:
    """A sweep with a cell for each case; on as many ranks as `NUM_RANKS` says, unless told otherwise.

    `wrapper`: a command that it is given to.
    """
    folder.mkdir(exist_ok=True)
    install_family(folder / "site", "misbehaving", Path(misbehaving_plugin.__file__).parent, "scenario")
    scenarios = ",".join(case.scenario for case in cases)
    options = ("--device", "cpu", "--systems", SYSTEMS[system], "--gpus", str(num_ranks or NUM_RANKS.get(system, 1)))
    limits = ("--iterations", str(NUM_ITERATIONS), "--stall", str(STALL_S))
    return RunningSweep(folder, *options, "--scenario", scenarios, *limits, wrapper=wrapper)


@dataclass(frozen=True, slots=True)
class Ended:
    """A cell that is over."""

    case: Case
    system: str
    record: RunRecord | None
    """None where there is none that can be read."""
    path: Path | None

    @property
    def said(self) -> str:
        """The reason, or the warnings of a run that finished."""
        if self.record is None:
            return "no record"
        return self.record.reason or "; ".join(self.record.warnings)

    @property
    def problems(self) -> list[str]:
        """What is wrong with it."""
        if self.record is None or self.path is None:
            return ["no record"]
        status, wrong = self.record.status, []
        if status != ("finished" if self.case.call == "close" else "failed"):
            wrong.append(f"is {status}")
        if missing := [told for told in self.case.told if told not in self.said]:
            wrong.append(f"does not say {missing}")
        if "\n" in self.said or len(self.said) > 4_000 or not self.said.isprintable():
            wrong.append("says more than a line can hold")
        if status == "failed" and "Traceback" not in (self.path / "traceback.txt").read_text(encoding="utf-8"):
            wrong.append("has no traceback")
        counters = self.record.counters
        if status == "finished" and not counters.conserved:
            wrong.append(f"counts {counters}")
        if self.case.call not in {*BEFORE_STEPS, "close"} and not counters.env_steps >= max(1, counters.learned or 0):
            wrong.append(f"counts {counters}")
        return wrong

    def row(self) -> str:
        """For a table."""
        status = "none" if self.record is None else self.record.status
        return f"{self.case.case:32} {self.case.call:17} {self.system:9} {status:9} {self.said[:150]}"


def ended(sweep: RunningSweep, system: str, cases: Sequence[Case]) -> list[Ended]:
    """The cells of a sweep that is over, in order."""
    (folder,) = sweep.out.iterdir()
    runs = {run.path.name.partition("-")[0]: run for run in store.read_runs(folder)}
    found = [(case, runs.get(f"{number:03d}")) for number, case in enumerate(cases, start=1)]
    return [
        Ended(case, system, None if run is None else run.record, None if run is None else run.path)
        for case, run in found
    ]
