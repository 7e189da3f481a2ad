"""Evaluation: plays whole episodes with weights that a run has left. Nothing is learned.

    N environments --(observations)--> Policy.act --(sampled actions)--> N environments, one after the other

All of it runs in this process and thread, so only the environments and the device block. Every environment plays the
same number of episodes and then stops: if all played until E episodes had ended, short episodes would have more than
their share. Letters: N environments, E episodes.
"""

from __future__ import annotations

import math
import pickle
import struct
import tempfile
import warnings
import zipfile
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch

from rlbench.harness.contract.agents import agents_per_env, num_rows
from rlbench.harness.contract.device import Seat
from rlbench.harness.contract.envs import make_counted_agents, make_counted_env
from rlbench.harness.metering.meter_file import MeterFile, meter_path
from rlbench.harness.processes.raised import in_a_line
from rlbench.harness.processes.redirected import say
from rlbench.systems.engine.rank.agreed_progress import EPISODE_METRICS
from rlbench.systems.engine.rank.players import AgentPlayers, Players
from rlbench.systems.engine.rank.rank_loop import ALONE
from rlbench.systems.policies.policy import Policy, policy_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import gymnasium
    import numpy.typing as npt

    from rlbench.harness.contract.device import Device
    from rlbench.harness.contract.scenario import Scenario

DAMAGE = (RuntimeError, TypeError, AttributeError, EOFError, ValueError, LookupError, OSError, ArithmeticError)
"""What a file may raise that holds no state dict of the policy, while it is read or loaded into the policy."""
SEED_KEY = 0x65
"""Sets the random streams of evaluations apart from those of training."""


class MetricMean(NamedTuple):
    """The mean of a metric over episodes; NaN where the scenario does not have it."""

    mean: float
    standard_error: float
    """Over the episodes, which are taken for independent; NaN for a single episode."""


class Evaluation(NamedTuple):
    """How well a policy does."""

    num_episodes: int
    """E, the number of episodes played."""
    figures: dict[str, MetricMean]
    """One for each of `EPISODE_METRICS`."""


def evaluate(scenario: Scenario, seed: int, weights: Path, num_episodes: int, device: Device) -> Evaluation:
    """Plays episodes with a policy that acts as in training: its actions are sampled.

    Args:
        scenario: that of the run.
        seed: that of the run; the random streams of environments and actions follow from it, whatever the weights.
        weights: a file with the policy's state dict.
        num_episodes: how many to play at least, 1 or more; rounded up to the same number for every environment. Where
            environments have several agents, they are the agents', and each environment plays equally often until all
            agents have left it.
        device: where the policy acts and environments render.

    Raises:
        ValueError: the file cannot be read, or has other weights than the scenario's policy; or an environment raised,
            which is told in a line. What an environment raises when it is closed becomes a warning.
    """
    policy = _load_policy(scenario, weights).to(device.torch_name)
    *env_seeds, action_seed = evaluation_seeds(seed, scenario.num_envs + 1)
    agents = agents_per_env(scenario)
    generator = torch.Generator(device.torch_name).manual_seed(action_seed)
    with tempfile.TemporaryDirectory(prefix="rlbench-") as name, ExitStack() as stack:
        folder = Path(name)
        meter = meter_path(folder, ALONE.rank)
        MeterFile.create(meter, num_rows(scenario), span_capacity=1)
        told = ToldScenario(scenario, weights.parent.name)
        seats = [
            Seat(place=ALONE, index=row, num_envs=num_rows(scenario), seed=env_seeds[row // agents], device=device)
            for row in range(num_rows(scenario))
        ]
        if agents == 1:
            envs = [stack.enter_context(closing(make_counted_env(told, seat, folder, meter))) for seat in seats]
            players = Players(scenario, policy, envs, device, generator)
            episodes = players.play(-(-num_episodes // scenario.num_envs))
        else:
            of_envs = [seats[first : first + agents] for first in range(0, len(seats), agents)]
            made = (make_counted_agents(told, of_env, folder, meter) for of_env in of_envs)
            crowds = [stack.enter_context(closing(crowd)) for crowd in made]
            episodes = AgentPlayers(scenario, policy, crowds, agents, device, generator).play(num_episodes)
    columns = np.array(episodes).T
    return Evaluation(
        len(episodes), {metric: _estimate(column) for metric, column in zip(EPISODE_METRICS, columns, strict=True)}
    )


def evaluation_seeds(seed: int, count: int) -> list[int]:
    """Seeds for evaluating a run that has `seed`, from a stream that training (`Context.env_seed`) does not use."""
    seeds: list[int] = np.random.SeedSequence(seed, spawn_key=(SEED_KEY,)).generate_state(count).tolist()
    return seeds


def _load_policy(scenario: Scenario, weights: Path) -> Policy:
    policy = policy_of(scenario, seed=0)
    try:
        _check_parts(weights)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # torch warns of what it has not written itself
            policy.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    except (*DAMAGE, UserWarning, pickle.UnpicklingError) as error:
        line = f"{type(error).__name__}: {error}".partition("\n")[0]
        what = "".join(letter for letter in line if letter.isprintable())  # torch sets some of it in bold
        raise ValueError(
            f"{weights}: is damaged, or not of the policy {scenario.policy} of {scenario.name} ({what}); "
            "run that cell again"
        ) from None
    return policy


def _check_parts(weights: Path) -> None:
    """Raises ValueError unless a file is what `torch.save` writes: an archive of parts that are not compressed.

    A compressed part may unpack to a thousand times its size.
    """
    try:
        with zipfile.ZipFile(weights) as archive:
            parts = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, struct.error) as problem:
        raise ValueError(f"no archive of weights: {problem}") from None
    if any(part.compress_type != zipfile.ZIP_STORED or part.file_size != part.compress_size for part in parts):
        raise ValueError("an archive with compressed parts, which torch.save does not write")


class ToldScenario:
    """Makes environments of a scenario whose exceptions become one line that names the environment and the run."""

    def __init__(self, scenario: Scenario, run: str) -> None:
        self._scenario, self._run = scenario, run

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """The scenario's."""
        return self._scenario.observation_space

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """The scenario's."""
        return self._scenario.action_space

    def make_envs(self, seats: Sequence[Seat]) -> Any:
        """The environment of several agents, wrapped in a `ToldEnv`."""
        whom = f"environment {seats[0].global_index // len(seats)} of {self._run}"
        with _told(whom):
            return ToldEnv(cast("Any", self._scenario).make_envs(seats), whom)

    def make_env(self, seat: Seat) -> gymnasium.Env[Any, Any]:
        """The environment, wrapped in a `ToldEnv`."""
        whom = f"environment {seat.global_index} of {self._run}"
        with _told(whom):
            return cast("gymnasium.Env[Any, Any]", ToldEnv(self._scenario.make_env(seat), whom))


class ToldEnv:
    """The part of an environment that an evaluation uses."""

    def __init__(self, env: Any, whom: str) -> None:
        self._env, self._whom = env, whom

    def __getattr__(self, name: str) -> Any:
        """What one of several agents has beside: who they are, and their spaces."""
        return getattr(self._env, name)

    def reset(self, *, seed: int | None = None) -> Any:
        """Resets the environment; raises ValueError for whatever it raises."""
        with _told(self._whom):
            return self._env.reset(seed=seed)

    def step(self, action: Any) -> Any:
        """Steps the environment; raises ValueError for whatever it raises."""
        with _told(self._whom):
            return self._env.step(action)

    def close(self) -> None:
        """Closes the environment; what it raises becomes a warning, since no episode depends on it."""
        try:
            self._env.close()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  whatever somebody else's `close` raises
            line = f"{self._whom} raised {in_a_line(error)} when it was closed"
            say(f"rlbench: warning: {line}")


@contextmanager
def _told(whom: str) -> Iterator[None]:
    """Turns whatever an environment raises into a ValueError of one line, but for what may be a Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ValueError(f"{whom} raised {in_a_line(error)}") from error


def _estimate(values: npt.NDArray[np.float64]) -> MetricMean:
    error = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return MetricMean(float(values.mean()), error)
