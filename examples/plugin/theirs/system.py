"""A system: it steps its environments in turn, and pretends to learn."""

from dataclasses import dataclass

from rlbench.harness.contract.budget import Progress
from rlbench.harness.contract.system import Context
from rlbench.harness.metering.meter import LagSummary


@dataclass(frozen=True, kw_only=True, slots=True)
class Turns:
    """Steps one environment after the other in the rank's own process, and 'learns' in batches."""

    name: str = "turns"
    about: str = "one environment after the other, in one process"
    batch: int = 4

    def __post_init__(self) -> None:
        """Checks what a user may set, as in `--systems turns:batch=6`."""
        if self.batch < 1:
            raise ValueError(f"batch={self.batch}: must be at least 1")

    def run(self, context: Context) -> None:
        """Runs one rank until the budget is spent, and says what became of every env step."""
        meter, waiting, done = context.meter, 0, Progress()
        envs = [context.make_env(i) for i in range(context.scenario.num_envs)]
        for env in envs:
            env.reset()
        meter.begin()
        while not context.budget.is_spent(done):
            with meter.span("simulate"):
                for env in envs:
                    *_, terminated, truncated, _ = env.step(1)
                    if terminated or truncated:
                        env.reset()
                    waiting += 1
            meter.discarded(1)
            waiting -= 1
            with meter.span("learn"), context.device.busy("learn", waiting):
                num_learned = waiting // self.batch * self.batch
                meter.learned(num_learned, LagSummary(0, 0))
                waiting -= num_learned
            meter.end_iteration({})
            done = Progress(iterations=done.iterations + 1, env_steps=meter.num_learned, seconds=meter.elapsed_s)
        meter.in_flight(waiting)
        for env in envs:
            env.close()


SYSTEM = Turns()
