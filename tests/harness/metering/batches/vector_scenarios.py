"""Environments with random episodes, alone and as vector environments that reset in each way, for tests of batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from rlbench.harness.contract.device import Place, Seat
from rlbench.harness.devices.kinds import CpuDevice
from rlbench.harness.metering.meter_file import MeterFile, meter_path

SPACE = Dict({"x": Box(-9.0, 9.0, (2,), np.float32), "b": Tuple((Discrete(99), MultiBinary(3)))})
ACTIONS = Discrete(5)


class RandomEnv(gymnasium.Env[Any, Any]):
    """Episodes of random lengths from 1 step on, whose ends, rewards and infos are random as well."""

    observation_space = SPACE
    action_space = ACTIONS

    def __init__(self, most_steps: int) -> None:
        self._most_steps = most_steps

    def _observe(self, action: int) -> dict[str, Any]:
        x = self.np_random.uniform(-9, 9, 2).astype(np.float32)
        return {"x": x, "b": (np.int64(action + self._left), self.np_random.integers(0, 2, 3, dtype=np.int8))}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Draws the length of the episode; the infos of a reset are not those of a step."""
        super().reset(seed=seed, options=options)
        self._left = int(self.np_random.integers(1, self._most_steps + 1))
        return self._observe(0), {"num_frames": 1000, "raw_reward": 1e6, "success": 0.5}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Ends the episode in one of three ways when it is as long as it was to be."""
        self._left -= 1
        info: dict[str, Any] = {}
        if self.np_random.random() < 0.5:
            info |= {"num_frames": int(self.np_random.integers(0, 5)), "raw_reward": self.np_random.normal()}
        terminated = truncated = False
        if not self._left:
            terminated, truncated = ((True, False), (False, True), (True, True))[self.np_random.integers(3)]
            if self.np_random.random() < 0.5:
                info |= {"success": float(self.np_random.integers(2)), "spl": self.np_random.random()}
        return self._observe(int(action)), self.np_random.normal(), terminated, truncated, info


class NativeEnvs(VectorEnv[Any, Any, Any]):
    """A vector environment as others write them: its own buffers, batched last observations, infos without masks."""

    def __init__(self, envs: Sequence[gymnasium.Env[Any, Any]], mode: AutoresetMode) -> None:
        self.metadata = {"autoreset_mode": mode}
        self.envs, self.mode, self.num_envs = envs, mode, len(envs)
        self.single_observation_space = envs[0].observation_space
        self.single_action_space = envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._latest: list[Any] = [None] * self.num_envs
        self._due: Any = np.zeros(self.num_envs, np.bool_)
        self._ends: Any = np.zeros((2, self.num_envs), np.bool_)
        self._buffer: Any = create_empty_array(self.single_observation_space, self.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Takes a seed for each environment; resets those of the mask."""
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
        for i in np.flatnonzero(mask):
            self._latest[i], _ = self.envs[i].reset(seed=None if seed is None else seed[i])
            self._ends[:, i] = False
        return concatenate(self.single_observation_space, self._latest, self._buffer), {}

    def close_extras(self, **kwargs: Any) -> None:
        """Closes each."""
        del kwargs
        for env in self.envs:
            env.close()

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Resets as its mode says."""
        num = self.num_envs
        rewards, ends = np.zeros(num), self._ends
        ends[:] = False
        infos: dict[str, Any] = {
            "num_frames": np.ones(num, int),
            "raw_reward": np.zeros(num),
            "success": np.full(num, math.nan),
        }
        infos["spl"] = infos["success"].copy()
        for i, action in enumerate(iterate(self.action_space, actions)):
            if self._due[i]:
                self._latest[i], info = self.envs[i].reset()
            else:
                self._latest[i], rewards[i], *ends[:, i], info = self.envs[i].step(action)
                info.setdefault("raw_reward", rewards[i])
            for name, value in info.items():
                infos[name][i] = value
        ended: Any = ends.any(0)
        self._due = ended if self.mode == AutoresetMode.NEXT_STEP else self._due
        if self.mode == AutoresetMode.SAME_STEP and ended.any():
            empty: Any = create_empty_array(self.single_observation_space, num)
            infos["final_obs"] = concatenate(self.single_observation_space, self._latest, empty)
            for i in np.flatnonzero(ended):
                self._latest[i], _ = self.envs[i].reset()
        return concatenate(self.single_observation_space, self._latest, self._buffer), rewards, ends[0], ends[1], infos


@dataclass(frozen=True)
class RandomScenario:
    """As much of a scenario as environments need, alone or in batches."""

    most_steps: int
    mode: AutoresetMode
    is_native: bool = False

    observation_space = SPACE
    action_space = ACTIONS

    def make_env(self, seat: Seat) -> RandomEnv:
        """One of them."""
        del seat
        return RandomEnv(self.most_steps)

    def make_envs(self, seats: Sequence[Seat]) -> VectorEnv[Any, Any, Any]:
        """All of them."""
        if self.is_native:
            return NativeEnvs([self.make_env(seat) for seat in seats], self.mode)
        return SyncVectorEnv([lambda: RandomEnv(self.most_steps) for _ in seats], autoreset_mode=self.mode)


def seats_of(num: int, *, rank: int = 1, before: int = 1) -> list[Seat]:
    """Neighbouring seats of a rank that has one more environment on either side."""
    place = Place(rank=rank, num_ranks=2, local_rank=rank)
    return [
        Seat(place=place, index=before + i, num_envs=num + 2, seed=70 + 11 * i + (i == 2) * 2**31, device=CpuDevice(1))
        for i in range(num)
    ]


def meter(folder: Path, num_envs: int) -> tuple[Path, MeterFile]:
    """A rank's meter."""
    folder.mkdir()
    path = meter_path(folder, 1)
    return path, MeterFile.create(path, num_envs=num_envs)
