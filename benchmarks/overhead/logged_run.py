"""Works out the overhead of a run on `logged/…`: passes its records, spans and configuration to `unused.py`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks.overhead.logged_gpu import KINDS, PREFIX, ROW
from benchmarks.overhead.moments import Moments
from benchmarks.overhead.unused import LANES, EnvSteps, Held, Reservation, lane_busy, learner_lost_s, lost_s, queue_full
from rlbench.results.records import store
from rlbench.results.records.schema import RunRecord
from rlbench.systems.choices.rollout import stream_limit

RANK, SECOND_LANE = -1, -2
"""Values of `environment` in spans.parquet."""
HOLDING = ("learn", "communicate", "wait:straggler", "wait:learner")


@dataclass(frozen=True, kw_only=True, slots=True)
class Logged:
    """What a run recorded."""

    envs: Mapping[int, EnvSteps]
    """By number within the run."""
    reservations: Mapping[int, Sequence[Reservation]]
    """By GPU."""
    communicating: Mapping[int, Moments]
    """By GPU."""
    cpu: npt.NDArray[np.float64]
    """[records, 2]: when the step or reservation ended, and the CPU seconds of its thread meanwhile."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Overhead:
    """Shares of the time that was looked at."""

    seconds: float
    """Length of that time on the wall clock: the window, from where the spans of every rank are kept."""
    collecting: float
    """Lost by environments; mean over all of the run's environments."""
    worst_env: float
    learner: float | None
    """Lost by the learner; None where its loss is in that of the environments."""
    cpu_percent: float
    """CPU time of what stands for simulators and GPUs: environments' steps and the network; 100 is one core."""

    @property
    def largest(self) -> float:
        """The larger of the two shares, which is compared with the aim."""
        return max(self.collecting, self.learner or 0.0)


def read_log(folder: Path) -> Logged:
    """Reads the records of a run; leaves out an incomplete one that a killed process left."""
    steps: dict[tuple[int, int], list[tuple[float, float, float]]] = defaultdict(list)
    workers: dict[int, int] = {}
    reservations: dict[int, list[Reservation]] = defaultdict(list)
    communicating: dict[int, list[tuple[float, float]]] = defaultdict(list)
    cpu: list[tuple[float, float]] = []
    for path in folder.glob(f"{PREFIX}gpu*.bin"):
        gpu, data = int(path.stem.removeprefix(f"{PREFIX}gpu")), path.read_bytes()
        for number, environment, thread, num_items, first, second, third, cpu_s in ROW.iter_unpack(
            data[: len(data) // ROW.size * ROW.size]
        ):
            kind = KINDS[number]
            cpu.append((third, cpu_s))
            if kind == "step":
                steps[environment, gpu].append((first, second, third))
                workers[environment] = thread
            elif kind == "communicate":
                communicating[gpu].append((first, third))
            else:
                reservations[gpu].append(Reservation(work=kind, num_items=num_items, asked_s=first, end_s=third))
    envs = {env: EnvSteps(gpu=gpu, worker=workers[env], times=np.array(times)) for (env, gpu), times in steps.items()}
    return Logged(
        envs=envs,
        reservations=reservations,
        communicating={g: Moments(s) for g, s in communicating.items()},
        cpu=np.array(cpu),
    )


def zero_s(spans: pd.DataFrame, log: Logged, time_scale: float) -> float:
    """The value of `perf_counter` when the run's clock was 0, from the last step of environment 0, which both have.

    The harness's span begins microseconds before the environment notes the time.
    """
    own = spans[(spans["environment"] == 0) & (spans["rank"] == 0) & (spans["kind"] == "simulate")]
    return float(log.envs[0].times[-1, 0] - own["begin_s"].iloc[-1] * time_scale)


def inferring_lane(spans: pd.DataFrame, rank: int) -> pd.DataFrame:
    """The spans of the thread that infers in a rank: its second lane, where it has one."""
    of_rank = spans[spans["rank"] == rank]
    second = of_rank["environment"] == SECOND_LANE
    return of_rank[second if second.any() else of_rank["environment"] == RANK]


def held_times(spans: pd.DataFrame, log: Logged, rank: int, zero: float, record: RunRecord) -> Held:
    """When a rank did not infer, by design."""
    time_scale = record.figures.time_scale
    own = inferring_lane(spans, rank)

    def moments(*kinds: str) -> Moments:
        chosen = own[own["kind"].isin(kinds)][["begin_s", "end_s"]]
        return Moments(zero + chosen.to_numpy() * time_scale)

    learning = {gpu: lane_busy(found, LANES[1]) for gpu, found in log.reservations.items()}
    of_others = Moments(np.concatenate([np.empty((0, 2)), *(busy.intervals for busy in learning.values())]))
    excused = moments("wait:straggler", "wait:learner") | (moments("communicate") & of_others)
    excused |= moments("learn") & learning.get(rank, Moments())
    return Held(
        spans=moments(*HOLDING),
        excused=excused | log.communicating.get(rank, Moments()),
        full=_full_queue(log, rank, record),
        trajectory_steps=_trajectory_steps(record.configuration),
    )


def _full_queue(log: Logged, rank: int, record: RunRecord) -> Moments:
    """When a rank with continuous overlap let no environment begin a trajectory.

    If samples were discarded, it is not known when they left the queue, and it counts as never full.
    """
    configuration, learning = record.configuration, log.reservations.get(rank, ())
    if configuration["system"]["overlap"]["kind"] != "Continuous" or record.counters.discarded:
        return Moments()
    envs = _learned_from(log, rank)
    batch = max((r.num_items for r in learning if r.work == "prepare"), default=0)
    if not batch:
        return Moments()
    learn = configuration["scenario"]["learn"]
    limit = stream_limit(
        batch,
        len(envs),
        _trajectory_steps(configuration),
        configuration["system"]["overlap"]["max_lag"],
        learn["epochs"] * learn["num_minibatches"],
    )
    last = max(env.times[-1, 2] for env in envs)
    return queue_full([env.times[:, 2] for env in envs], _trajectory_steps(configuration), learning, limit, last)


def _trajectory_steps(configuration: Mapping[str, Any]) -> int:
    """T, env steps of a trajectory."""
    return int(configuration["system"]["rollout"].get("num_steps") or configuration["scenario"]["rollout_steps"])


def _learned_from(log: Logged, gpu: int) -> list[EnvSteps]:
    """The environments that the learner on a GPU learns from: its own, or all where it is the only one."""
    learners = [other for other, found in log.reservations.items() if any(r.work == "learn" for r in found)]
    return [env for env in log.envs.values() if learners == [gpu] or env.gpu == gpu]


def group_numbers(configuration: Mapping[str, Any], log: Logged) -> dict[int, object]:
    """The group of each environment: the environments that are inferred for together, once all of them wait."""
    collect, num_envs = configuration["system"]["collect"]["kind"], configuration["scenario"]["num_envs"]
    if collect == "Lockstep":
        return {env: env // num_envs for env in log.envs}
    if collect == "DoubleBuffered":
        members: dict[int, list[int]] = defaultdict(list)
        for env in sorted(log.envs):
            members[log.envs[env].worker].append(env)
        return {
            env: (worker, place >= len(envs) // 2) for worker, envs in members.items() for place, env in enumerate(envs)
        }
    return {env: env for env in log.envs}


def overhead_of(run: store.StoredRun) -> Overhead:
    """The overhead of a run in the window of its record. Raises ValueError when it did not finish."""
    record, log = run.record, read_log(run.path)
    window = record.figures.window
    if record.status != "finished" or window is None:
        raise ValueError(f"{record.id}: {record.status}: {record.reason}")
    configuration, scale = record.configuration, record.figures.time_scale
    spans = pd.read_parquet(run.path / "spans.parquet")
    zero = zero_s(spans, log, scale)
    kept_since = max(inferring_lane(spans, gpu)["begin_s"].min() for gpu in log.reservations)
    during = (zero + max(window.begin_s, kept_since) * scale, zero + window.end_s * scale)
    groups = group_numbers(configuration, log)
    lanes = {gpu: lane_busy(found, LANES[0]) for gpu, found in log.reservations.items()}
    inferences = {
        gpu: np.array(sorted((r.asked_s, r.end_s) for r in found if r.work == "infer")).reshape(-1, 2)
        for gpu, found in log.reservations.items()
    }
    held = {gpu: held_times(spans, log, gpu, zero, record) for gpu in lanes}
    lost = []
    for number, env in log.envs.items():
        by = env.gpu if len(inferences[env.gpu]) else min(gpu for gpu, found in inferences.items() if len(found))
        lost.append(
            lost_s(
                env,
                mates=[log.envs[m] for m, group in groups.items() if group == groups[number] and m != number],
                colleagues=[e for m, e in log.envs.items() if e.worker == env.worker and m != number],
                rendering=lanes[env.gpu],
                inferring=lanes[by],
                inferences=inferences[by],
                held=held[by],
                window=during,
            )
        )
    seconds = during[1] - during[0]
    is_during = (log.cpu[:, 0] >= during[0]) & (log.cpu[:, 0] <= during[1])
    return Overhead(
        seconds=seconds,
        collecting=float(np.mean(lost)) / seconds,
        worst_env=max(lost) / seconds,
        learner=_learner_share(configuration, log, during),
        cpu_percent=100 * float(log.cpu[is_during, 1].sum()) / seconds,
    )


def _learner_share(configuration: Mapping[str, Any], log: Logged, window: tuple[float, float]) -> float | None:
    """The share that the learner loses, mean over the GPUs that learn; None unless it learns while collecting."""
    if configuration["system"]["overlap"]["kind"] != "Continuous":
        return None
    shares = []
    for gpu, found in log.reservations.items():
        if any(r.work == "learn" for r in found):
            ends = [env.times[:, 2] for env in _learned_from(log, gpu)]
            lost = learner_lost_s(ends, _trajectory_steps(configuration), found, window)
            shares.append(lost / (window[1] - window[0]))
    return float(np.mean(shares))
