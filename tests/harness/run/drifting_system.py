"""A system of somebody else's, `drifters`: each rank trains by itself, so none needs the others.

It is installed beside rlbench by `install_drifters`. A rank learns what it collected one iteration before, so there is
always something that it has not learned; it starts a program that would outlive it, as simulators do; and it raises
once a file named `raise-on-rank-K` is in the folder that FAULTY_RELEASE names.
"""

from __future__ import annotations

import os
import subprocess
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from rlbench.harness.contract.budget import Progress
from rlbench.harness.contract.system import Context
from rlbench.harness.metering.meter import LagSummary

PROGRAM = "sleep"
STEPS = 4
"""Of each environment, in one iteration."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Drifters:
    """Steps its environments in the rank's own process."""

    name: str = "drifters"
    about: str = "every rank by itself"
    in_step: bool = False
    survives_lost_rank: bool = True

    def run(self, context: Context) -> None:
        """Until the mean return of the last episodes is reached."""
        meter, rank = context.meter, context.place.rank
        order = Path(os.environ["FAULTY_RELEASE"], f"raise-on-rank-{rank}")
        program = subprocess.Popen([PROGRAM, "1000"], start_new_session=True)
        envs = [context.make_env(index) for index in range(context.scenario.num_envs)]
        for env in envs:
            env.reset()
        waiting, returns, done = 0, deque([0.0], maxlen=len(envs)), Progress()
        meter.begin()
        while not context.budget.is_spent(done):
            if order.exists():
                raise RuntimeError(f"rank {rank} was told to")
            collected = 0
            with meter.span("simulate"):
                for _ in range(STEPS):
                    for env in envs:
                        *_, terminated, _, info = env.step(0)
                        collected += 1
                        if terminated:
                            returns.append(info["episode"][0])
                            env.reset()
            meter.learned(waiting, LagSummary(0, 0))
            waiting = collected
            meter.end_iteration({})
            mean = sum(returns) / len(returns)
            done = Progress(iterations=done.iterations + 1, seconds=meter.elapsed_s, metrics={"return": mean})
        meter.in_flight(waiting)
        for env in envs:
            env.close()
        program.kill()
        program.wait()


SYSTEM = Drifters()


def install_drifters(site: Path) -> None:
    """Adds an installed distribution with the system to the folder `site`."""
    info = site / "drifting_system-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "drifting_system.py").write_text(Path(__file__).read_text(encoding="utf-8"), encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: drifting-system\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[rlbench.systems]\ndrifters = drifting_system:SYSTEM\n", encoding="utf-8")
