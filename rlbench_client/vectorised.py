"""Counts for a vector of environments that one call steps: N environments, N env steps, less those that were reset.

From 1.0 on, gymnasium resets an ended environment in the next call (`NEXT_STEP`): its action is then ignored, and
nothing is counted for it. Before 1.0, and with `SAME_STEP`, the call that ends an environment also resets it, and the
info of the last step is in `final_info`. The time of a call is that of N env steps.
"""

from __future__ import annotations

import math
import sys
import time
from os import getpid
from typing import Any

from rlbench_client.counters import AT, CounterFile
from rlbench_client.rules import MOST_FRAMES, fraction_of, frames_of


class VectorCounting:
    """What a wrapper of a vector of environments does; `env` is the vector."""

    env: Any

    def __init__(self, env: Any, frames_per_step: int) -> None:
        super().__init__(env)  # type: ignore[call-arg]  # the base's, which `rlbench_client.counted` chooses
        self._frames_per_step = frames_per_step
        self._resets_with_next_step = _resets_with_next_step(env)
        self._pid: int | None = None

    def _open(self) -> None:
        import numpy as np

        num_envs = int(self.env.num_envs)
        self._file = CounterFile(num_envs=num_envs)
        self._pid = getpid()
        self._file.floats[AT["began_at"]] = self._file.floats[AT["answered_at"]] = time.perf_counter()
        self._returns, self._lengths = np.zeros(num_envs), np.zeros(num_envs, np.int64)
        self._frames, self._ended = np.zeros(num_envs, np.int64), np.zeros(num_envs, bool)

    def reset(self, **options: Any) -> Any:
        """Begins an episode in all environments, or in those of `options["reset_mask"]`."""
        if self._pid != getpid():
            self._open()
        begin = time.perf_counter()
        mask = (options.get("options") or {}).get("reset_mask", slice(None))
        answer = self.env.reset(**options)
        end = time.perf_counter()
        self._file.floats[AT["reset_s"]] += end - begin
        self._file.floats[AT["answered_at"]] = end
        self._ended[mask] = False
        for sums in (self._returns, self._lengths, self._frames):
            sums[mask] = 0
        return answer

    def step(self, actions: Any) -> Any:
        """Applies an action in each environment."""
        import numpy as np

        if self._pid != getpid():
            self._open()
        begin = time.perf_counter()
        answer = self.env.step(actions)
        end = time.perf_counter()
        _, rewards, terminated, truncated, infos = answer
        over = np.asarray(terminated, bool) | np.asarray(truncated, bool)
        stepped = ~self._ended if self._resets_with_next_step else np.ones(len(over), bool)
        told = self._of_each(infos, "num_frames", over, self._frames_per_step)
        if "num_frames" in infos or "final_info" in infos:
            for env in np.flatnonzero(stepped & ~((told >= 0) & (told <= MOST_FRAMES) & (told % 1 == 0))):
                frames_of(float(told[env]))  # raises ValueError
        frames = np.where(stepped, told, 0).astype(np.int64)
        ints, floats = self._file.ints, self._file.floats
        ints[AT["env_steps"]] += int(stepped.sum())
        ints[AT["frames"]] += int(frames.sum())
        floats[AT["step_s"]] += end - begin
        floats[AT["answered_at"]] = end
        self._returns += np.where(stepped, self._of_each(infos, "raw_reward", over, rewards), 0)
        self._lengths += stepped
        self._frames += frames
        self._ended = over
        ending = np.flatnonzero(over & stepped)
        if len(ending):
            success, spl = (self._of_each(infos, name, over, math.nan) for name in ("success", "spl"))
            for env in map(int, ending):
                sums = float(self._returns[env]), int(self._lengths[env]), int(self._frames[env])
                known = fraction_of("success", success[env]), fraction_of("spl", spl[env])
                self._file.put_episode((end, *sums, *known))
            for total in (self._returns, self._lengths, self._frames):
                total[ending] = 0
        return answer

    def _of_each(self, infos: Any, name: str, over: Any, default: Any) -> Any:
        """The value of `name` in the info of each environment, float64 [N]; the default where there is none."""
        import numpy as np

        values = np.broadcast_to(np.asarray(default, np.float64), over.shape).copy()
        if name in infos:
            mask = np.asarray(infos.get(f"_{name}", np.ones(over.shape, bool)), bool)
            mask &= ~over if "final_info" in infos else True  # of an ended one it is that of the reset
            values[mask] = np.asarray(infos[name])[mask]
        final = infos.get("final_info")
        if isinstance(final, dict):  # from gymnasium 1.0: a dict of arrays
            if name in final:
                mask = np.asarray(final.get(f"_{name}", over), bool)
                values[mask] = np.asarray(final[name])[mask]
        elif final is not None:  # before: an array of dicts
            for env, info in enumerate(final):
                if info is not None and name in info:
                    values[env] = info[name]
        return values


def _resets_with_next_step(env: Any) -> bool:
    mode = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
    if mode is not None:
        return str(getattr(mode, "value", mode)) == "NextStep"
    gymnasium = sys.modules.get("gymnasium")
    return gymnasium is not None and not gymnasium.__version__.startswith("0.")
