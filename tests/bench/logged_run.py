"""The overhead of a run on `logged/…`: its records, spans and configuration, as `tests.bench.overhead` takes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from results import store
from tests.bench.intervals import Moments
from tests.bench.logged_gpu import KINDS, PREFIX, ROW
from tests.bench.overhead import LANES, EnvSteps, Held, Reservation, lane_busy, learner_lost_s, lost_s

RANK, SECOND_LANE = -1, -2
"""As `environment` in spans.parquet."""
HOLDING = ("learn", "communicate", "wait:straggler", "wait:learner")


@dataclass(frozen=True, kw_only=True, slots=True)
class Logged:
    """What a run wrote down."""

    envs: Mapping[int, EnvSteps]
    """By number within the run."""
    reservations: Mapping[int, Sequence[Reservation]]
    """By GPU."""
    synchronizing: Mapping[int, Moments]
    """By GPU."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Overhead:
    """Shares of the time that was looked at."""

    seconds: float
    """How long that is, on the wall clock: the window, as far back as the ranks' latest spans are kept."""
    collecting: float
    """Lost by environments, mean over all of the run."""
    worst_env: float
    learner: float | None
    """Lost by the learner; None where its loss is in that of the environments."""

    @property
    def largest(self) -> float:
        """What is held against the aim."""
        return max(self.collecting, self.learner or 0.0)


def read_log(folder: Path) -> Logged:
    """Reads the records of a run, without those of a killed process that were not whole."""
    steps: dict[tuple[int, int], list[tuple[float, float, float]]] = defaultdict(list)
    workers: dict[int, int] = {}
    reservations: dict[int, list[Reservation]] = defaultdict(list)
    synchronizing: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for path in folder.glob(f"{PREFIX}gpu*.bin"):
        gpu, data = int(path.stem.removeprefix(f"{PREFIX}gpu")), path.read_bytes()
        for number, environment, thread, num_items, first, second, third in ROW.iter_unpack(
            data[: len(data) // ROW.size * ROW.size]
        ):
            kind = KINDS[number]
            if kind == "step":
                steps[environment, gpu].append((first, second, third))
                workers[environment] = thread
            elif kind == "synchronize":
                synchronizing[gpu].append((first, third))
            else:
                reservations[gpu].append(Reservation(work=kind, num_items=num_items, asked_s=first, end_s=third))
    envs = {env: EnvSteps(gpu=gpu, worker=workers[env], times=np.array(times)) for (env, gpu), times in steps.items()}
    return Logged(envs=envs, reservations=reservations, synchronizing={g: Moments(s) for g, s in synchronizing.items()})


def zero_s(spans: pd.DataFrame, log: Logged, time_scale: float) -> float:
    """The moment of `perf_counter` at which the run's clock was 0, from the last step that both have of environment 0.

    The harness's span begins microseconds before the environment notes the time.
    """
    own = spans[(spans["environment"] == 0) & (spans["rank"] == 0) & (spans["kind"] == "simulate")]
    return float(log.envs[0].times[-1, 0] - own["begin_s"].iloc[-1] * time_scale)


def inferring_lane(spans: pd.DataFrame, rank: int) -> pd.DataFrame:
    """The spans of the thread of a rank that infers: its second lane, where it has one."""
    of_rank = spans[spans["rank"] == rank]
    second = of_rank["environment"] == SECOND_LANE
    return of_rank[second if second.any() else of_rank["environment"] == RANK]


def held_times(spans: pd.DataFrame, log: Logged, rank: int, zero: float, time_scale: float) -> Held:
    """When a rank did not infer by design."""
    own = inferring_lane(spans, rank)

    def moments(*kinds: str) -> Moments:
        chosen = own[own["kind"].isin(kinds)][["begin_s", "end_s"]]
        return Moments(zero + chosen.to_numpy() * time_scale)

    learning = {gpu: lane_busy(found, LANES[1]) for gpu, found in log.reservations.items()}
    of_others = Moments(np.concatenate([np.empty((0, 2)), *(busy.intervals for busy in learning.values())]))
    excused = moments("wait:straggler", "wait:learner") | (moments("communicate") & of_others)
    excused |= moments("learn") & learning.get(rank, Moments())
    return Held(spans=moments(*HOLDING), excused=excused | log.synchronizing.get(rank, Moments()))


def group_numbers(configuration: Mapping[str, Any], log: Logged) -> dict[int, object]:
    """The group of each environment: those that are inferred for together, once all wait."""
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
    held = {gpu: held_times(spans, log, gpu, zero, scale) for gpu in lanes}
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
    return Overhead(
        seconds=seconds,
        collecting=float(np.mean(lost)) / seconds,
        worst_env=max(lost) / seconds,
        learner=_learner_share(configuration, log, during),
    )


def _learner_share(configuration: Mapping[str, Any], log: Logged, window: tuple[float, float]) -> float | None:
    """The learner's own loss, where it learns while collecting goes on; the mean over the GPUs that learn."""
    system, scenario = configuration["system"], configuration["scenario"]
    if system["overlap"]["kind"] != "Continuous":
        return None
    num_steps = system["rollout"].get("num_steps") or scenario["rollout_steps"]
    learners = {gpu: found for gpu, found in log.reservations.items() if any(r.work == "learn" for r in found)}
    central = len(learners) == 1
    shares = []
    for gpu, found in learners.items():
        ends = [env.times[:, 2] for env in log.envs.values() if central or env.gpu == gpu]
        shares.append(learner_lost_s(ends, num_steps, found, window) / (window[1] - window[0]))
    return float(np.mean(shares))
