"""The environment wrapper in which the harness counts env steps, frames, episodes and the time of steps and resets.

Runs in the process that steps the environment; writes that environment's block of the meter, and one record for each
episode to the rank's episode file, which all workers of the rank open for appending (a record is one small write, which
Linux appends whole). No system can count differently, since none of them sees these counters.
"""

from __future__ import annotations

import math
import os
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.meter_file import KIND_OF, TOTALS_AT, Block, MeterFile

if TYPE_CHECKING:
    import gymnasium

    from harness.contract import Scenario, Seat

EPISODE = struct.Struct("<qddqqdd")
EPISODE_FIELDS = ("environment", "end_s", "return", "length", "frames", "success", "spl")
SIMULATE, RESET = KIND_OF["simulate"], KIND_OF["reset"]


def episodes_path(folder: Path, rank: int) -> Path:
    """The episode file of a rank: records of `EPISODE`."""
    return folder / f"episodes-rank{rank}.bin"


class CountedEnv:
    """Steps one environment and counts. `reset` and `step` are gymnasium's, without automatic reset."""

    def __init__(self, env: gymnasium.Env[dict[str, Any], int], block: Block, episodes_fd: int, seat: Seat) -> None:
        self._env = env
        self._block = block
        self._episodes_fd = episodes_fd
        self._environment = seat.global_index
        self._seed: int | None = seat.seed
        self._step_s, self._squared = block.word("step_s"), block.word("step_s_squared")
        self._env_steps, self._frames = block.word("env_steps"), block.word("frames")
        self._wait_s = block.word("pid") + TOTALS_AT + KIND_OF["wait:inference"]
        self._answered_at = 0.0  # set by the first reset, which comes before the first step
        self._return, self._length, self._episode_frames = 0.0, 0, 0

    def reset(self, seed: int | None = None) -> dict[str, Any]:
        """Begins an episode; its time is a `reset` span. The first one has the seat's seed, unless told otherwise."""
        seed, self._seed = self._seed if seed is None else seed, None
        begin = time.perf_counter()
        observation, _ = self._env.reset(seed=seed)
        end = time.perf_counter()
        self._block.put_span(RESET, begin, end)
        self._block.floats[self._block.word("reset_s")] += end - begin
        self._answered_at = end
        self._return, self._length, self._episode_frames = 0.0, 0, 0
        return observation

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Applies one action: one env step. Raises ValueError when the reward is not finite.

        The time since the step or reset before it is what the environment waited for this action.
        """
        block = self._block
        ints, floats = block.ints, block.floats
        begin = time.perf_counter()
        observation, reward, terminated, truncated, info = self._env.step(action)
        end = time.perf_counter()
        took = end - begin
        frames = info.get("num_frames", 1)
        ints[self._env_steps] += 1
        ints[self._frames] += frames
        floats[self._step_s] += took
        floats[self._squared] += took * took
        floats[self._wait_s] += begin - self._answered_at
        self._answered_at = end
        block.put_span(SIMULATE, begin, end)
        reward = float(reward)
        if not math.isfinite(reward):
            raise ValueError(f"environment {self._environment} gave the reward {reward}: it must be finite")
        self._return += info.get("raw_reward", reward)
        self._length += 1
        self._episode_frames += frames
        if terminated or truncated:
            self._record(end, info)
        return observation, reward, bool(terminated), bool(truncated), info

    def _record(self, end: float, info: dict[str, Any]) -> None:
        success, spl = info.get("success", math.nan), info.get("spl", math.nan)
        info["episode"] = (self._return, float(self._length), float(success), float(spl))
        record = EPISODE.pack(
            self._environment, end, self._return, self._length, self._episode_frames, float(success), float(spl)
        )
        os.write(self._episodes_fd, record)
        self._block.add("episodes", 1)

    def close(self) -> None:
        """Closes the environment and the episode file."""
        self._env.close()
        os.close(self._episodes_fd)


def make_counted_env(scenario: Scenario, seat: Seat, folder: Path | str, meter: Path) -> CountedEnv:
    """Makes environment `seat.index` of a rank, with its counters. Call it in the process that will step it."""
    block = Block(MeterFile(meter, writable=True), 1 + seat.index)
    episodes = os.open(episodes_path(Path(folder), seat.place.rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    return CountedEnv(scenario.make_env(seat), block, episodes, seat)
