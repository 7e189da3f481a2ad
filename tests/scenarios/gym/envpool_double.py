"""A package `envpool` for tests, with two ids of one environment, of Gymnasium's interface, by `DoublePool`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch

from tests.harness.metering.batches.pool_double import DoublePool
from tests.harness.metering.batches.vector_scenarios import RandomEnv

ID = "Walk-v0"
IDS = [ID, "Run-v0"]


class DoubleOfPackage(DoublePool):
    """As EnvPool's, which can be stepped as a whole too."""

    def reset(self) -> tuple[Any, dict[str, Any]]:
        """Begins another episode of each, the first one with its seed."""
        if not self.num_sent:
            self.async_reset()
        else:
            self._due = [True] * self.num_envs
            self.send(self.single_action_space.sample()[None], self._all)
        observation, *_, info = self.recv()
        return observation, dict(info)

    def step(self, actions: Any) -> Any:
        """Steps all."""
        self.send(actions, self._all)
        return self.recv()

    @property
    def _all(self) -> Any:
        import numpy as np

        return np.arange(self.num_envs, dtype=np.int32)


class ClippingDouble(DoubleOfPackage):
    """As EnvPool's Atari with `reward_clip`: rewards are signs, and the infos have what they were."""

    def recv(self) -> Any:
        """Signs."""
        observation, rewards, terminated, truncated, info = super().recv()
        others = {name: value for name, value in info.items() if "raw_reward" not in name}
        return observation, rewards.clip(-1, 1), terminated, truncated, {**others, "reward": 10 * rewards}


def make(task_id: str, *, env_type: str, num_envs: int, batch_size: int, seed: list[int], **given: Any) -> Any:
    """What `envpool.make` does."""
    assert task_id in IDS
    assert (env_type, len(seed)) == ("gymnasium", num_envs)
    assert all(0 <= one < 2**31 for one in seed)
    most_steps = given.pop("max_episode_steps", 9)
    kind = ClippingDouble if given.pop("reward_clip", False) else DoubleOfPackage
    if given:
        raise TypeError(f"unexpected keyword arguments {sorted(given)}")
    return kind([RandomEnv(most_steps) for _ in seed], batch_size, seed)


@contextmanager
def installed() -> Iterator[None]:
    """As if it were installed, and EnvPool were not."""
    package: Any = ModuleType("envpool")
    package.make, package.list_all_envs = make, lambda: IDS
    with patch.dict(sys.modules, envpool=package):
        yield
