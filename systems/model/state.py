"""What the model knows of a run, as arrays: `Rules` never change, `State` does.

A *site* is a sampler with its environments: one for each rank, or a single one where one learner learns for all ranks.
Where C environments are stepped by one call, an environment of the model stands for such a batch (`setup.py`).
Letters: S sites, E environments of a site, G GPUs of a site, W environment workers of a site with K environments each,
D steps drawn ahead, T steps of a trajectory, Q whole trajectories that may wait, M reports of a rollout.
Moments and times are seconds of the profile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlbench.harness.devices.booking import CORES

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]
    Counts = npt.NDArray[np.int16]
    Records = npt.NDArray[np.void]

LOCKSTEP, DYNAMIC, DOUBLE_BUFFERED, ACTOR_SIDE = range(4)
"""How actions meet environments."""
FIXED, VARIABLE, STREAM = range(3)
"""What fills a batch."""
NEVER, THRESHOLD, OPTIMAL = range(3)
"""When stragglers are cut."""
IDLE, QUEUED, STARTING, INFERRING, SIMULATING, RENDERING, RESETTING, REPLIED = range(8)
"""Phases of an environment: it has no action; it waits for others of its worker; the worker is about to begin; its
actor infers; it simulates; it renders; it resets on a core; its reply is not read yet."""
OFF, WAITING, ACTING = range(3)
"""Phases of a sampler: between rollouts; waiting for replies or the learner; inferring."""
INFER, SIMULATE, WAIT_LEARNER, SCHEDULE = range(4)
"""Spans of a sampler."""
NO_VERSION = np.iinfo(np.int64).max


class Rules(NamedTuple):
    """What the system and the profile say; the same for all sites."""

    collect: int
    min_batch: int
    max_batch: int
    rollout: int
    num_steps: int
    """T."""
    target: int
    """Env steps of a rollout, or of a batch of a stream."""
    limit: int
    """Env steps of a stream that may wait for the learner."""
    preempt: int
    p: float
    least_steps: int
    num_ranks: int
    """Number of ranks that watch each other."""
    render_s: float
    infer_fixed_s: float
    infer_item_s: float
    render_factor: float
    """How much slower rendering and inference are beside learning."""
    learn_factor: float
    reset_s: float
    cores: int
    """Cores that the environments of a rank share; 0 where each environment has one."""
    actor_infer_s: float
    """Inference for each step of an actor; 0 unless actors hold the policy."""
    envs_per_worker: int
    infer_cores: int
    """Cores that an inference holds; 0 where it has a GPU."""
    learn_cores: int
    """Cores that learning holds."""
    schedule_s: float
    """Per env step, of the sampler."""
    answer_s: float
    """Per env step, of the environment's process, beside the step."""
    of_batch: int
    """C: environments that each of the model's stands for; every number and time above is for all of them."""


ENVIRONMENT = np.dtype(
    [
        ("phase", "i8"),
        ("gpu_of", "i8"),  # the site's GPU on which it renders
        ("cores_of", "i8"),  # the site's GPU whose clock has its cores
        ("position", "i8"),  # the next draw
        ("drawn", "i8"),  # how many draws there are
        ("num_ended", "i8"),  # episodes that its last step ended
        ("burst", "i8"),  # steps that an actor has yet to play
        ("played", "i8"),  # steps that it has played
        ("acted_version", "i8"),
        ("acted", "i8"),  # steps of which the rank knows the action
        ("began_step", "f8"),
        ("answered", "f8"),
        # what its meter would hold
        ("num_env_steps", "i8"),
        ("num_episodes", "i8"),
        ("step_s", "f8"),
        ("step_s_squared", "f8"),
        ("reset_s", "f8"),
        ("wait_s", "f8"),
        # the clocks of `systems.engine.rollouts.sampler`
        ("began", "f8"),
        ("last_reply", "f8"),
        ("num_replies", "i8"),
        ("carried", "?"),
        # the rollout
        ("taken", "i8"),  # steps of this rollout, or of a stream's trajectory
        ("left", "i8"),  # steps that ended when the rollout was full, and belong to the next
        # a stream
        ("batch", "i8"),  # its steps in the learner's batch
        ("discarded", "i8"),
        ("run_end", "i8"),  # `acted` at the end of its steps in the learner's batch, or -1
        ("run_num_ended", "i8"),  # episodes that ended there
    ]
)
SITE = np.dtype(
    [
        ("now", "f8"),
        ("is_hungry", "?"),  # the draws of some environment have run out
        ("stopping", "?"),  # the run is over: no step is to begin
        ("version", "i8"),  # of the weights that learn
        ("acts_with", "i8"),  # version of the weights that act
        ("is_held", "?"),  # the weights that act stay as they are, though newer ones are there
        # the sampler
        ("sampler", "i8"),
        ("looks", "?"),  # something has happened that the sampler may have waited for
        ("since", "f8"),  # when its open span began
        ("until", "f8"),  # when its inference will be done
        ("batch_size", "i8"),
        ("turn", "i8"),
        ("num_replied", "i8"),
        ("num_in_flight", "i8"),
        # the rollout
        ("num_arrived", "i8"),
        ("num_complete", "i8"),  # environments that have T steps
        ("version_sum", "i8"),  # over the steps of this rollout
        ("version_least", "i8"),
        ("left_version_sum", "i8"),
        ("left_version_least", "i8"),
        ("rollout_began", "f8"),
        ("finished_at", "f8"),
        # preemption
        ("planned", "i8"),  # S, or -1 where ranks do not count
        ("planned_s", "f8"),
        ("reached_at", "f8"),  # when the ranks had S steps together, as far as that is known
        ("counts_at", "f8"),
        ("reported", "i8"),
        ("num_reports", "i8"),
        # a stream
        ("whole_first", "i8"),
        ("num_whole", "i8"),
        ("num_waiting", "i8"),  # env steps that wait for the learner
        ("missing", "i8"),  # env steps that the learner's batch lacks; 0 while it learns
        ("oldest", "i8"),  # policy version of the oldest samples that the learner takes
        ("batch_lag", "i8"),  # sum of the versions of the batch's samples
        ("batch_open", "i8"),  # trajectories of the batch whose episode goes on, of single environments
        ("batch_least", "i8"),
    ]
)
WORKER = np.dtype([("length", "i8"), ("is_busy", "?")])
TRAJECTORY = np.dtype([("env", "i8"), ("acted", "i8"), ("first", "i8")])
"""Its environment, that one's `acted` when it was whole, and how many steps were taken or discarded."""
REPORT = np.dtype([("at", "f8"), ("new", "i8")])
MOST_REPORTS = 1024


class State(NamedTuple):
    """How the run stands; it uses records so that compiled functions pass on few arrays."""

    sites: Records
    """[S]."""
    envs: Records
    """[S, E]."""
    words: Floats
    """Clocks of the GPUs, [S, G, words]; see `harness.devices.booking`. A site infers and learns on its first."""
    events: Floats
    """When each environment will go on, as a tournament tree: [S, 2 P], leaf e at P + e, the first of all at 1."""
    seconds: Floats
    """Simulation times drawn ahead, [S, E, D]."""
    ends: Counts
    """Episodes that end with the step, [S, E, D]."""
    group_of: Ints
    """Double buffering's groups, [S, E]."""
    workers: Records
    """[S, W]."""
    queue: Ints
    """Environments that wait for their worker, [S, W, K]."""
    batch: Ints
    """Environments of the inference under way, [S, E]."""
    replied: Ints
    """Environments whose replies are not read yet, [S, E]."""
    spans: Floats
    """Seconds of samplers, [S, 4]."""
    known_finishes: Floats
    """When ranks are known to have finished, [S], ascending; infinite for others."""
    reports: Records
    """Steps counted in this rollout, [S, M]."""
    partial_versions: Ints
    """Versions of the steps of trajectories under way, [S, E, T]."""
    partial_ended: Counts
    """Episodes that ended with them, [S, E, T]."""
    whole: Records
    """A ring of whole trajectories, [S, Q]."""
    whole_versions: Ints
    """Versions of their steps, [S, Q, T]."""
    whole_ended: Counts
    """Episodes that ended with them, [S, Q, T]."""


def make_state(num_sites: int, num_envs: int, num_gpus: int, rules: Rules, *, num_drawn: int) -> State:
    """Makes a state in which nothing has happened yet."""
    num_workers, leaves = num_envs // rules.envs_per_worker, 1 << max(1, (num_envs - 1).bit_length())
    is_stream = rules.rollout == STREAM
    steps = rules.num_steps if is_stream else 1
    ring = rules.limit // steps + 2 * num_envs + 2 if is_stream else 1

    def zeros(*shape: int, dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
        return np.zeros((num_sites, *shape), dtype)

    state = State(
        sites=zeros(dtype=SITE),
        envs=zeros(num_envs, dtype=ENVIRONMENT),
        words=zeros(num_gpus, CORES + rules.cores),
        events=np.full((num_sites, 2 * leaves), np.inf),
        seconds=zeros(num_envs, num_drawn),
        ends=zeros(num_envs, num_drawn, dtype=np.int16),
        group_of=zeros(num_envs, dtype=np.int64),
        workers=zeros(num_workers, dtype=WORKER),
        queue=zeros(num_workers, rules.envs_per_worker, dtype=np.int64),
        batch=zeros(num_envs, dtype=np.int64),
        replied=zeros(num_envs, dtype=np.int64),
        spans=zeros(4),
        known_finishes=np.full(num_sites, np.inf),
        reports=zeros(MOST_REPORTS if rules.preempt == OPTIMAL else 1, dtype=REPORT),
        partial_versions=zeros(num_envs, steps, dtype=np.int64),
        partial_ended=zeros(num_envs, steps, dtype=np.int16),
        whole=zeros(ring, dtype=TRAJECTORY),
        whole_versions=zeros(ring, steps, dtype=np.int64),
        whole_ended=zeros(ring, steps, dtype=np.int16),
    )
    state.sites["reached_at"], state.sites["planned"] = np.inf, -1
    state.envs["run_end"] = -1
    # A worker has begun the first episodes of its environments one after the other.
    later = rules.envs_per_worker - 1 - np.arange(num_envs) % rules.envs_per_worker
    state.envs["reset_s"], state.envs["answered"] = rules.reset_s, -rules.reset_s * later
    for least in ("version_least", "left_version_least", "batch_least"):
        state.sites[least] = NO_VERSION
    return state


NOT_HELD = frozenset({"seconds", "ends", "known_finishes", "group_of"})
"""Arrays that a snapshot need not hold: a rollout only reads them, or adds to them."""


def snapshot(state: State) -> dict[str, npt.NDArray[Any]]:
    """Copies what a rollout changes."""
    return {name: values.copy() for name, values in state._asdict().items() if name not in NOT_HELD}


def restore(state: State, saved: dict[str, npt.NDArray[Any]], sites: Ints) -> None:
    """Takes some sites back to a snapshot; draws that were added meanwhile are kept."""
    drawn = state.envs["drawn"][sites]
    for name, values in saved.items():
        getattr(state, name)[sites] = values[sites]
    state.envs["drawn"][sites] = drawn
