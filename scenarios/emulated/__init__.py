"""`emulated/…`: environments and GPU work that take the time a profile states, so that many GPUs fit on one laptop."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from rlbench.harness.contract.network_costs import NetworkCosts
from rlbench.harness.contract.settings import GpuCosts, LearnSettings
from rlbench.scenarios.emulated.profile import Profile, read_profile, shipped_profiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import gymnasium
    from gymnasium.vector import VectorEnv

    from rlbench.harness.contract.device import Seat
    from rlbench.scenarios.emulated.times import BlocksOfCalls, BlocksOfTimes


QUICKENED = {
    "simulator": ("step.median_ms", "collision.median_ms", "episode.reset_ms", "batch.step_ms", "gpu.render_ms"),
    "inference": ("gpu.infer_fixed_ms", "gpu.infer_item_ms", "cpu.actor_infer_ms"),
    "learner": ("gpu.prepare_ms", "gpu.learn_fixed_ms", "gpu.learn_item_ms"),
    "scheduling": ("cpu.schedule_ms", "cpu.answer_ms"),
    "communication": (
        "network.synchronize_ms",
        "network.synchronize_doubling_ms",
        "network.latency_ms",
        "network.bandwidth_mb_per_s",
    ),
}
"""The times of each stage; an environment's step ends with its rendering."""

LEARN = LearnSettings(learning_rate=3e-3, discount=0.5)


@dataclass(frozen=True, kw_only=True, slots=True)
class EmulatedScenario:
    """A profile around a small task that is really learned."""

    name: str
    workload: str
    profile: Profile
    num_envs: int
    rollout_steps: int
    envs_per_batch: int = 1
    """Environments that are stepped by one call; more than 1 only where the profile has times of such calls."""
    policy: str = "small"
    learn: LearnSettings = LEARN
    time_scale: float = 1.0
    """All times of the profile are multiplied by it: 0.5 runs twice as fast, and leaves half the time for real work."""
    preload: tuple[str, ...] = ("gymnasium",)
    sleeps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Checks what the profile has not checked."""
        for name in ("num_envs", "rollout_steps", "envs_per_batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{self.name}: {name}={getattr(self, name)}: must be at least 1")
        if self.envs_per_batch > 1:
            try:
                self.profile.batch.call_ms(self.envs_per_batch)
            except ValueError as error:
                raise ValueError(f"{self.name}: envs_per_batch={self.envs_per_batch}: {error}") from None
        if not 1e-6 <= self.time_scale <= 1e6:
            raise ValueError(f"{self.name}: time_scale={self.time_scale}: must be from 1e-6 to 1e6")

    @property
    def gpu_costs(self) -> GpuCosts:
        """The profile's GPU times in seconds, scaled."""
        cpu, gpu, network, unit = self.profile.cpu, self.profile.gpu, self.profile.network, self.time_scale / 1e3
        return GpuCosts(
            render_s=gpu.render_ms * unit,
            infer_fixed_s=gpu.infer_fixed_ms * unit,
            infer_item_s=gpu.infer_item_ms * unit,
            prepare_s=gpu.prepare_ms * unit,
            learn_fixed_s=gpu.learn_fixed_ms * unit,
            learn_item_s=gpu.learn_item_ms * unit,
            render_while_learning_factor=gpu.render_while_learning_factor,
            learn_while_rendering_factor=gpu.learn_while_rendering_factor,
            actor_infer_s=cpu.actor_infer_ms * unit,
            cores=cpu.cores_per_gpu,
            learn_cores=cpu.learn_cores,
            schedule_s=cpu.schedule_ms * unit,
            answer_s=cpu.answer_ms * unit,
            network=NetworkCosts(
                synchronize_s=network.synchronize_ms * unit,
                synchronize_doubling_s=network.synchronize_doubling_ms * unit,
                latency_s=network.latency_ms * unit,
                bytes_per_s=network.bandwidth_mb_per_s * 1e6 / self.time_scale,
                weights_bytes=network.weights_mb * 1e6,
            ),
        )

    @property
    def profile_document(self) -> dict[str, Any]:
        """Its profile as TOML has it."""
        return self.profile.document

    def with_numbers(self, numbers: Mapping[str, float]) -> EmulatedScenario:
        """The scenario with other numbers at some dotted keys. Raises ValueError for one that breaks a rule."""
        return replace(self, profile=self.profile.changed(numbers))

    def quicker(self, stage: str, factor: float) -> EmulatedScenario:
        """The scenario with one of `contract.prediction.STAGES` so many times as quick."""
        return replace(self, profile=self.profile.quicker(QUICKENED[stage], factor))

    @property
    def observation_space(self) -> gymnasium.spaces.Dict:
        """One of four cues, one-hot."""
        from rlbench.scenarios.emulated.env import OBSERVATION_SPACE

        return OBSERVATION_SPACE

    @property
    def action_space(self) -> gymnasium.spaces.Discrete:
        """One of the cues."""
        from gymnasium.spaces import Discrete

        from rlbench.scenarios.emulated.env import NUM_CUES

        return Discrete(NUM_CUES)

    @property
    def reset_s(self) -> float:
        """Seconds of a reset, scaled; 0 in batches, where a reset is part of a call."""
        return 0.0 if self.envs_per_batch > 1 else self.profile.episode.reset_ms / 1e3 * self.time_scale

    def times(self, seeds: Sequence[int]) -> BlocksOfTimes | BlocksOfCalls:
        """The unscaled simulation times of environments with these seeds, or of their batches, as really drawn."""
        from rlbench.scenarios.emulated.times import BlocksOfCalls, BlocksOfTimes

        if self.envs_per_batch > 1:
            return BlocksOfCalls(self.profile, self.workload, seeds, self.envs_per_batch)
        return BlocksOfTimes(self.profile, self.workload, seeds)

    def part(self, global_index: int, seed: int) -> str:  # noqa: ARG002  the scene comes from the seed
        """How slow the scene is, between powers of two of the median scene's time: `0.5 to 1 x the median`."""
        from rlbench.scenarios.emulated.times import BlocksOfTimes

        if self.workload == "homogeneous":
            return "the median"
        factor = BlocksOfTimes(self.profile, self.workload, [seed]).scene_factors[0]
        low = 2.0 ** math.floor(math.log2(factor))
        return f"{low:g} to {2 * low:g} x the median"

    def make_env(self, seat: Seat) -> gymnasium.Env[dict[str, Any], int]:
        """Makes an environment whose times and cues come from the seat's seed."""
        from rlbench.scenarios.emulated.env import RecallEnv
        from rlbench.scenarios.emulated.times import StepTimes

        return RecallEnv(self.profile, StepTimes(self.profile, self.workload, seat.seed), seat, self.time_scale)

    def make_envs(self, seats: Sequence[Seat]) -> VectorEnv[Any, Any, Any]:
        """Makes the environments of these seats as one, which one call steps."""
        from rlbench.scenarios.emulated.batch_env import RecallBatch
        from rlbench.scenarios.emulated.times import CallTimes

        times = CallTimes(self.profile, self.workload, [seat.seed for seat in seats])
        return RecallBatch(self.profile, times, seats, self.time_scale)


class EmulatedFamily:
    """`emulated/NAME` for shipped profiles, `emulated/path.toml` for your own."""

    about = "environments and GPU work that take the time a profile states, around a task that is really learned"

    @property
    def variants(self) -> tuple[str, ...]:
        """The shipped profiles."""
        return shipped_profiles()

    def unavailable(self) -> str | None:
        """None: it can always run."""
        return None

    def make(self, variant: str, workload: str) -> EmulatedScenario:
        """Reads the profile; raises ValueError with file, line and rule when the profile breaks one."""
        variant = variant or self.variants[0]
        profile = read_profile(variant)
        return EmulatedScenario(
            name=f"emulated/{variant}",
            workload=workload,
            profile=profile,
            num_envs=profile.collect.num_envs,
            rollout_steps=profile.collect.rollout_steps,
            envs_per_batch=profile.collect.envs_per_batch,
            learn=replace(LEARN, epochs=profile.learn.epochs, num_minibatches=profile.learn.num_minibatches),
        )

    def moved(
        self, variant: str, settings: Mapping[str, str], move: Callable[[str], str]
    ) -> tuple[str, dict[str, str]]:
        """The variant, with the path of a profile moved, and the settings, which have none."""
        return move(variant) if variant.endswith(".toml") else variant, dict(settings)


FAMILY = EmulatedFamily()
