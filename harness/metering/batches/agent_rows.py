"""What a parallel environment gives by agent, as rows: is it there, and is it what the scenario states?

Row i belongs to agent i of `possible_agents`, A of them. What breaks a rule is a ValueError that names the environment
and the agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rlbench.harness.metering.batches.observations import BatchObservations
from rlbench.harness.metering.counted import (
    FRACTION_RULE,
    FRAMES_RULE,
    MOST_REWARD,
    fraction,
    num_frames,
    real_number,
    refused,
    reward_rule,
    scalars,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import gymnasium
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Mask = npt.NDArray[np.bool_]
    Rows = npt.NDArray[np.intp]

RESET_RULE = "(observations, infos), both dicts by agent"
STEP_RULE = "(observations, rewards, terminations, truncations, infos), all dicts by agent"


def check_agents(
    env: Any, num: int, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
) -> None:
    """Raises ValueError unless an environment has A = `num` possible agents, who all have these spaces."""
    try:
        agents = list(env.possible_agents)
    except (AttributeError, TypeError):
        rule = "a PettingZoo parallel environment, with possible_agents"
        raise ValueError(f"make_envs gave a {type(env).__name__}: it must give {rule}") from None
    if len(set(agents)) != num or len(agents) != num:
        raise ValueError(f"make_envs gave {shown(agents)} as possible_agents: the scenario states {num} agents")
    for name, stated in (("observation_space", observation_space), ("action_space", action_space)):
        for agent in agents:
            if (given := getattr(env, name)(agent)) != stated:
                rule = f"the scenario states {shown(stated)}, for every agent"
                raise ValueError(f"make_envs gave {name}({agent!r}) = {shown(given)}: {rule}")


class Parallel(Protocol):
    """As much of a parallel environment as counting takes; `harness/contract/agents.py` says what it must do."""

    @property
    def possible_agents(self) -> Sequence[Any]:
        """All A of them."""

    @property
    def agents(self) -> Sequence[Any]:
        """Those that are there."""

    def reset(self, seed: int | None = None) -> Any:
        """Begins an episode."""

    def step(self, actions: dict[Any, Any]) -> Any:
        """Applies the actions of those that are there."""

    def close(self) -> None:
        """Ends it."""


class AgentRows:
    """Reads what one environment gives; letters: A possible agents, K that are there."""

    def __init__(self, env: Parallel, space: gymnasium.Space[Any], environment: int) -> None:
        """Of one that `check_agents` has accepted, number `environment` of the run."""
        self._env, self._environment = env, environment
        self.names = list(env.possible_agents)
        self._row_of = {name: row for row, name in enumerate(self.names)}
        self._observations = BatchObservations(space, len(self.names), self.refused)

    def there(self) -> Mask:
        """Who is in the environment now, [A]."""
        mask = np.zeros(len(self.names), np.bool_)
        try:
            agents = list(self._env.agents)
            mask[[self._row_of[agent] for agent in agents]] = True
        except (AttributeError, KeyError, TypeError):
            given = getattr(self._env, "agents", None)
            raise self.refused(None, "has agents", given, "a list of some of possible_agents") from None
        return mask

    def parts(self, answer: Any, num: int, what: str, rule: str) -> list[Mapping[Any, Any]]:
        """The dicts that an answer has."""
        try:
            parts = list(answer)
        except TypeError:
            parts = []
        if len(parts) != num or not all(isinstance(part, Mapping) for part in parts):
            raise self.refused(None, what, answer, rule)
        return parts

    def observations(self, given: Mapping[Any, Any], rows: Rows) -> Any:
        """The observations of agents, [K], as arrays [A, ...] in the structure of the space; zeros in other rows."""
        return self._observations.spread((int(row), self._of(given, row, "observation")) for row in rows)

    def rewards(self, given: Mapping[Any, Any], rows: Rows) -> Floats:
        """Rewards that float32 can hold, [A]; 0 in other rows than those of agents, [K]."""
        rewards = np.zeros(len(self.names))
        for row in rows:
            rewards[row] = self._number(row, "the reward", self._of(given, row, "reward"))
        return rewards

    def flags(self, given: Mapping[Any, Any], rows: Rows, what: str) -> Mask:
        """Flags of agents, [K], as an array [A]; False in other rows."""
        flags = np.zeros(len(self.names), np.bool_)
        for row in rows:
            flag = self._of(given, row, what)
            if not isinstance(flag, bool | np.bool_):
                raise self.refused(row, f"gave the {what}", flag, "a bool")
            flags[row] = flag
        return flags

    def infos(self, given: Mapping[Any, Any], rows: Rows) -> list[Mapping[str, Any]]:
        """The infos of agents, [K]; an empty one for whoever has none."""
        infos: list[Mapping[str, Any]] = []
        for row in rows:
            info = given.get(self.names[row], {})
            if not isinstance(info, Mapping):
                raise self.refused(row, "gave the info", info, "a dict")
            infos.append(info)
        return infos

    def frames(self, infos: list[Mapping[str, Any]], rows: Rows) -> int:
        """Frames of the env step: the most that an agent says; 1 if nobody does."""
        said = []
        for row, info in zip(rows, infos, strict=True):
            if "num_frames" in info:
                number = num_frames(info["num_frames"])
                if number is None:
                    raise self.refused(row, "gave num_frames =", info["num_frames"], FRAMES_RULE)
                said.append(number)
        return max(said, default=1)

    def raw_rewards(self, infos: list[Mapping[str, Any]], rows: Rows, rewards: Floats) -> Floats:
        """What counts as each agent's reward, [A], where `rewards`, [A], are learned from."""
        raw = rewards
        for row, info in zip(rows, infos, strict=True):
            if "raw_reward" in info:
                raw = raw.copy() if raw is rewards else raw
                raw[row] = self._number(row, "the raw_reward", info["raw_reward"])
        return raw

    def fractions(self, infos: list[Mapping[str, Any]], rows: Rows, name: str) -> Floats:
        """Numbers from 0 to 1 of agents, [K]; NaN where none is given."""
        found = np.full(len(rows), np.nan)
        for at, (row, info) in enumerate(zip(rows, infos, strict=True)):
            if name in info:
                number = fraction(info[name])
                if number is None:
                    raise self.refused(row, f"gave {name} =", info[name], FRACTION_RULE)
                found[at] = number
        return found

    def check_who_left(self, acted: Mask, ended: Mask, there: Mask) -> None:
        """Of those that acted in a step, whoever's episode ended must be gone, and the others not, [A] all."""
        wrong = np.flatnonzero(acted & (ended == there))
        if not len(wrong):
            return
        who = self._who(wrong[0])
        if ended[wrong[0]]:
            raise ValueError(f"{who} ended and is in agents: `step` must remove it, at least until the next step")
        raise ValueError(f"{who} left agents and did not end: its termination or truncation must be True then")

    def _of(self, given: Mapping[Any, Any], row: np.intp, what: str) -> Any:
        try:
            return given[self.names[row]]
        except KeyError:
            raise self.refused(row, f"gave no {what}; the agents that have one:", list(given), "one of them") from None

    def _number(self, row: np.intp, what: str, value: Any) -> float:
        try:
            number = float(value) if type(value) in scalars else real_number(value)
        except OverflowError:
            number = np.inf
        if number is None:
            raise self.refused(row, f"gave {what}", value, "a real number")
        if not -MOST_REWARD <= number <= MOST_REWARD:  # NaN neither
            raise self.refused(row, f"gave {what}", number, reward_rule(number))
        return number

    def _who(self, row: int | np.intp | None) -> str:
        who = f"environment {self._environment}"
        return who if row is None else f"{who}, agent {self.names[row]}"

    def refused(self, row: int | np.intp | None, what: str, value: object, rule: str) -> ValueError:
        """The error for what an agent gave, or the environment itself."""
        return refused(self._who(row), what, value, rule)
