"""The infos of a batch of environments: arrays [B] of what each one said, with masks of those that said it.

Where a step has reset environments whose episodes had ended (`AutoresetMode.SAME_STEP`), what their last step said
stands in `final_info`, if the batch has one, and what `info` itself says of them is of the reset.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlbench.harness.metering.counted import (
    FRACTION_RULE,
    FRAMES_RULE,
    MOST_FRAMES,
    MOST_REWARD,
    fraction,
    num_frames,
    real_number,
    reward_rule,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from rlbench.harness.metering.batches.observations import Refuse

    Array = npt.NDArray[Any]
    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]
    Mask = npt.NDArray[np.bool_]


class BatchInfos:
    """What the infos of one step say of the environments that made an env step."""

    def __init__(self, info: Mapping[str, Any], counts: Mask, ended: Mask | None, refuse: Refuse) -> None:
        """`counts`, [B], made an env step; `ended`, [B], have been reset in the same step. None: none has."""
        self._counts, self._refuse = counts, refuse
        self._parts = [(info, counts)]
        if ended is not None and isinstance(final := info.get("final_info"), Mapping):
            ended = ended & self.mask(info, "final_info")
            self._parts = [(info, counts & ~ended), (final, ended)]

    def mask(self, info: Mapping[str, Any], name: str) -> Mask:
        """Which environments gave something, [B]: all, if the infos do not say."""
        mask = info.get(f"_{name}")
        if mask is None:
            return np.ones(len(self._counts), np.bool_)
        array = np.asarray(mask)
        if array.shape != self._counts.shape or array.dtype != np.bool_:
            raise self._refuse(None, f"gave _{name} =", mask, f"an array of {len(self._counts)} bool")
        return array

    def _given(self, name: str) -> list[tuple[Array, Mask]]:
        """The values of what was given under a name, [B, ...], and of which environments, [B]."""
        found = []
        for info, of in self._parts:
            if info.get(name) is None:
                continue
            rows = of & self.mask(info, name)
            try:
                values = np.asarray(info[name])
            except ValueError:
                values = np.zeros(())
            if values.shape[:1] != rows.shape:
                raise self._refuse(None, f"gave {name} =", info[name], f"an array of {len(rows)}")
            found.append((values.reshape(len(rows)) if values.size == len(rows) else values, rows))
        return found

    def frames(self) -> Ints:
        """Frames of each env step, [B]; 0 where there was none."""
        frames: Ints = self._counts.astype(np.int64)
        for values, rows in self._given("num_frames"):
            given = values[rows]
            if values.dtype.kind not in "iu" or values.ndim > 1 or ((given < 0) | (given > MOST_FRAMES)).any():
                given = np.array(self._each(num_frames, values, rows, "num_frames =", FRAMES_RULE), np.int64)
            frames[rows] = given
        return frames

    def raw_rewards(self, rewards: Floats) -> Floats:
        """What counts as each environment's reward, [B], where `rewards`, [B], are learned from."""
        raw = rewards
        for values, rows in self._given("raw_reward"):
            raw = raw.copy() if raw is rewards else raw
            if values.dtype.kind in "biuf" and values.ndim == 1:
                raw[rows] = values[rows]
            else:
                raw[rows] = self._each(real_number, values, rows, "the raw_reward", "a real number")
            bad = np.flatnonzero(rows & ~(np.abs(raw) <= MOST_REWARD))
            if len(bad):
                value = float(raw[bad[0]])
                raise self._refuse(int(bad[0]), "gave the raw_reward", value, reward_rule(value))
        return raw

    def fractions(self, name: str, rows: Mask) -> Floats:
        """Numbers from 0 to 1 of some environments, [B]; NaN for others, and where none is given."""
        found = np.full(len(rows), math.nan)
        for values, given in self._given(name):
            chosen = rows & given
            part = values[chosen]
            if values.dtype.kind in "iuf" and values.ndim == 1 and not ((part < 0) | (part > 1)).any():
                found[chosen] = part
            else:
                found[chosen] = self._each(fraction, values, chosen, f"{name} =", FRACTION_RULE)
        return found

    def _each(
        self, convert: Callable[[Any], float | None], values: Array, rows: Mask, what: str, rule: str
    ) -> list[float]:
        """Converts the values of some environments, one after the other."""
        found = []
        for i in np.flatnonzero(rows):
            number = convert(values[i])
            if number is None:
                raise self._refuse(int(i), f"gave {what}", values[i], rule)
            found.append(number)
        return found
