"""`logged/…`: the scenarios of `emulated/…`, with a record of every reservation and every step.

A process that imports this module writes a record for each reservation on an emulated GPU; the environments here write
one for each step. Ranks and environment workers write, each record as one small append, which Linux keeps whole. The
benchmark reads when the run is over; the files stay in the run folder. Nothing blocks but the disk.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbench.harness.contract.settings import Message, Work
from rlbench.harness.devices.emulated_gpu import EmulatedGpu
from rlbench.scenarios.emulated import EmulatedFamily, EmulatedScenario
from rlbench.scenarios.emulated.env import RecallEnv
from rlbench.scenarios.emulated.times import StepTimes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rlbench.harness.contract.device import Seat

ROW = struct.Struct("<qqqqdddd")
"""Kind, environment of the run, thread, number of items, three moments, CPU seconds of the thread meanwhile. A step's
moments: begins, has simulated, ends; a reservation's: was asked for, 0, reserved end. The environment uses the CPU
seconds, or the network, which stands for the GPU's work."""
KINDS = ("step", "render", "infer", "prepare", "learn", "communicate")
PREFIX = "reserved-"
NO_ENVIRONMENT = -1

_communicate = EmulatedGpu.communicate


@cache
def _log(path: Path) -> int:
    """The file of one GPU, open for the life of the process; forks share it, and append all the same."""
    return os.open(path.with_name(f"{PREFIX}{path.name}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def put(
    gpu: EmulatedGpu,
    kind: str,
    environment: int,
    num_items: int,
    moments: tuple[float, float, float],
    cpu_s: float = 0.0,
) -> None:
    """Writes one record."""
    row = ROW.pack(KINDS.index(kind), environment, threading.get_native_id(), num_items, *moments, cpu_s)
    os.write(_log(gpu._path), row)


@contextmanager
def busy(gpu: EmulatedGpu, work: Work, num_items: int) -> Iterator[None]:
    """Stands in for `EmulatedGpu.busy`; writes its record when the work is done, since learning may be put off."""
    asked = time.perf_counter()
    end = gpu.reserve(work, num_items)
    began = time.thread_time()
    yield
    cpu_s = time.thread_time() - began
    put(gpu, work, NO_ENVIRONMENT, num_items, (asked, 0.0, gpu.await_end(work, end)), cpu_s)


def communicate(gpu: EmulatedGpu, message: Message, peer: int = 0) -> None:
    """Stands in for `EmulatedGpu.communicate`; records the profile's time, but for an exchange the measured one."""
    network, num_ranks = gpu.costs.network, gpu._num_ranks
    begin = time.perf_counter()
    _communicate(gpu, message, peer)
    took = {
        "synchronize": network.synchronize_ranks_s(num_ranks),
        "all_reduce": network.all_reduce_s(num_ranks),
        "exchange": time.perf_counter() - begin,
    }
    if num_ranks > 1:
        put(gpu, "communicate", NO_ENVIRONMENT, 0, (begin, 0.0, begin + took[message]))


# This reaches every GPU of the process and of its forks.
EmulatedGpu.busy = busy  # type: ignore[method-assign,assignment]
EmulatedGpu.communicate = communicate  # type: ignore[method-assign,assignment]


class LoggedTimes(StepTimes):
    """Remembers the draw of the step under way."""

    drawn_s = 0.0

    def next_step(self) -> tuple[float, bool]:
        """Draws as `StepTimes` does."""
        self.drawn_s, ends = super().next_step()
        return self.drawn_s, ends


class LoggedCores:
    """Remembers when the core that it last gave would be done."""

    done_at = 0.0

    def __init__(self, gpu: EmulatedGpu) -> None:
        self._gpu = gpu

    def simulated_at(self, begin: float, seconds: float, num_envs: int) -> float:
        """Books the same core as the GPU would."""
        self.done_at = self._gpu.simulated_at(begin, seconds, num_envs)
        return self.done_at


class LoggedEnv(RecallEnv):
    """Writes when each step began, had simulated on a core for the drawn time, and ended."""

    def __init__(self, scenario: LoggedScenario, times: LoggedTimes, seat: Seat) -> None:
        super().__init__(scenario.profile, times, seat, scenario.time_scale)
        assert isinstance(seat.device, EmulatedGpu)
        self._gpu, self._drawn, self._environment = seat.device, times, seat.global_index
        self._cores = None if self._gpu_of_cores is None else LoggedCores(self._gpu_of_cores)
        self._gpu_of_cores = self._cores  # type: ignore[assignment]  # as far as it is used

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """One env step."""
        begin, began = time.perf_counter(), time.thread_time()
        result = super().step(action)
        simulated = begin + self._drawn.drawn_s * self._scale if self._cores is None else self._cores.done_at
        cpu_s = time.thread_time() - began
        put(self._gpu, "step", self._environment, 1, (begin, simulated, time.perf_counter()), cpu_s)
        return result


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedScenario(EmulatedScenario):
    """An emulated scenario whose environments record what they do."""

    preload: tuple[str, ...] = ("gymnasium", "benchmarks.overhead.logged_gpu")

    def make_env(self, seat: Seat) -> LoggedEnv:
        """The same environment, logged."""
        return LoggedEnv(self, LoggedTimes(self.profile, self.workload, seat.seed), seat)


class LoggedFamily(EmulatedFamily):
    """The same profiles."""

    about = "emulated scenarios, with reservations and steps written down"

    def make(self, variant: str, workload: str) -> LoggedScenario:
        """Makes the scenario. Raises ValueError for a profile with resets, whose time is not recorded."""
        plain = super().make(variant, workload)
        if plain.profile.episode.reset_ms:
            raise ValueError(f"logged/{variant}: episode.reset_ms={plain.profile.episode.reset_ms}: must be 0")
        kept = {field.name: getattr(plain, field.name) for field in fields(plain)}
        kept |= {"name": f"logged/{variant}", "preload": LoggedScenario.__dataclass_fields__["preload"].default}
        return LoggedScenario(**kept)


FAMILY = LoggedFamily()
