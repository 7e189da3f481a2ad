"""A pool of environments as EnvPool is, in threads of its own: answers come as environments end, in any order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from rlbench.harness.contract.device import Seat
from tests.harness.metering.batches.vector_scenarios import ACTIONS, SPACE, RandomEnv

RESET = object()
NUM_THREADS = 3


class DoublePool:
    """Steps environments in threads; answers for `batch_size` of them at a time, in the order in which they end.

    The environments of an answer are put in random order, and each step waits for as many turns of its thread as a
    generator says, so that the order is another one in each run.
    """

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}
    opened: ClassVar[list[DoublePool]] = []
    """Those that nobody has closed; a test closes them when it is over."""

    def __init__(self, envs: Sequence[gymnasium.Env[Any, Any]], batch_size: int, seeds: Sequence[int]) -> None:
        self.num_envs, self.config = len(envs), {"batch_size": batch_size, "num_envs": len(envs)}
        self.single_observation_space = envs[0].observation_space
        self.single_action_space = envs[0].action_space
        self._envs, self._seeds = envs, list(seeds)
        self._size = batch_size or len(envs)
        self._due = [False] * len(envs)
        self._todo: queue.Queue[tuple[int, Any]] = queue.Queue()
        self._done: queue.Queue[tuple[int, Any]] = queue.Queue()
        self._rng = np.random.default_rng()
        self.num_sent = 0
        self.opened.append(self)
        for _ in range(NUM_THREADS):
            threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while (task := self._todo.get())[0] >= 0:
            i, action = task
            env = self._envs[i]
            if action is RESET or self._due[i]:
                seed = self._seeds[i] if action is RESET else None
                observation, _ = env.reset(seed=seed)
                answer: Any = (observation, 0.0, False, False, {})
                self._due[i] = False
            else:
                answer = env.step(action)
                self._due[i] = bool(answer[2] or answer[3])
            self._done.put((i, answer))

    def async_reset(self) -> None:
        """All begin."""
        self._put([(i, RESET) for i in range(self.num_envs)])

    def send(self, actions: Any, env_id: npt.NDArray[np.int32], /) -> None:
        """The environments of `env_id` act."""
        assert env_id.dtype == np.int32
        self.num_sent += len(env_id)
        rows = iterate(batch_space(self.single_action_space, len(env_id)), actions)
        self._put(list(zip(env_id.tolist(), rows, strict=True)))

    def _put(self, tasks: list[tuple[int, Any]]) -> None:
        for k in self._rng.permutation(len(tasks)):
            self._todo.put(tasks[k])

    def recv(self) -> tuple[Any, Any, Any, Any, Mapping[str, Any]]:
        """Those that ended first; in their order, if it is all of them."""
        came = [self._done.get() for _ in range(self._size)]
        if self._size == self.num_envs:
            came.sort(key=lambda of: of[0])
        else:
            came = [came[k] for k in self._rng.permutation(self._size)]
        empty: Any = create_empty_array(self.single_observation_space, self._size)
        observations, rewards, terminated, truncated, infos = zip(*(answer for _, answer in came), strict=True)
        info: dict[str, Any] = {"env_id": np.array([i for i, _ in came], np.int32)}
        for name in {name for own in infos for name in own}:
            info[name] = np.array([own.get(name, 0) for own in infos])
            info[f"_{name}"] = np.array([name in own for own in infos])
        return (
            concatenate(self.single_observation_space, observations, empty),
            np.array(rewards),
            np.array(terminated),
            np.array(truncated),
            info,
        )

    def close(self) -> None:
        """Ends the threads, when they have done what they have."""
        if self in self.opened:
            self.opened.remove(self)
        for _ in range(NUM_THREADS):
            self._todo.put((-1, None))


@dataclass(frozen=True)
class PoolScenario:
    """As much of a scenario as counting takes; its pool may be replaced by what `change` makes of it."""

    most_steps: int
    envs_per_recv: int
    change: Callable[[DoublePool], Any] = lambda pool: pool

    observation_space = SPACE
    action_space = ACTIONS

    def make_env(self, seat: Seat) -> RandomEnv:
        """One of them."""
        del seat
        return RandomEnv(self.most_steps)

    def make_envs(self, seats: Sequence[Seat]) -> Any:
        """All of them."""
        envs = [self.make_env(seat) for seat in seats]
        return self.change(DoublePool(envs, self.envs_per_recv, [seat.seed for seat in seats]))
