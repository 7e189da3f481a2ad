from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlbench.harness.contract.device import Seat
from rlbench.harness.devices.kinds import CpuDevice
from rlbench.systems.engine.rank.evaluate import Evaluation, evaluate
from rlbench.systems.policies.policy import Policy, build_policy
from tests.systems.actions import choices
from tests.systems.engine.agents.crowds import NUM_AGENTS, NUM_ENVS, CrowdScenario, LoggedCrowd
from tests.systems.engine.batched import SPACE


@dataclass(frozen=True, kw_only=True)
class Watched(CrowdScenario):
    """Whose environments can be looked at."""

    made: dict[int, LoggedCrowd] = field(default_factory=dict)
    breaks_at: int | None = None

    def make_envs(self, seats: Sequence[Seat]) -> LoggedCrowd:
        """One of them, or one that breaks."""
        env = CrowdScenario.make_envs(self, seats)
        self.made[seats[0].index // NUM_AGENTS] = env
        if self.breaks_at == seats[0].index // NUM_AGENTS:
            env._logs = {}
        return env


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A file with weights of the scenario's policy."""
    path = tmp_path / "run7" / "weights.pt"
    path.parent.mkdir()
    torch.save(build_policy("small", SPACE, choices(4), seed=3).state_dict(), path)
    return path


def evaluated(weights: Path, scenario: Watched, num_episodes: int = 30) -> Evaluation:
    """An evaluation on it."""
    return evaluate(scenario, 0, weights, num_episodes, CpuDevice(2))


def watched(folder: Path, **settings: Any) -> Watched:
    """A scenario that logs to a new folder."""
    folder.mkdir()
    return Watched(logs=str(folder), comes=0.05, **settings)


def test_every_environment_plays_equally_often_until_all_have_left(weights: Path, tmp_path: Path) -> None:
    """Until so many agents' episodes have ended; the policy sees each one begin, and its last action after that."""
    scenario, seen = watched(tmp_path / "logs"), Counter[int]()
    act, last = Policy.act, dict[float, tuple[list[float], int]]()

    def watching(self: Policy, obs: Mapping[str, Any], prev: Any, starts: Any, state: Any, generator: Any) -> Any:
        answer = act(self, obs, prev, starts, state, generator)
        for row, before, is_start, action in zip(obs["where"].tolist(), prev, starts.tolist(), answer[0], strict=True):
            if any(row):
                number, stay, step, _ = row
                assert is_start == (step == 0)
                if not is_start:
                    assert last[number] == ([stay, step - 1], int(before))
                last[number] = [stay, step], int(action)
                seen[int(number)] += 1
        return answer

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Policy, "act", watching)
        evaluation = evaluated(weights, scenario)
    assert evaluation.num_episodes >= 30
    stays = [sum(env._stays.values()) for env in scenario.made.values()]
    assert len(stays) == NUM_ENVS
    begun = [len(env.agents) for env in scenario.made.values()]
    assert evaluation.num_episodes == sum(stays) - sum(begun), "all have begun again, and nobody acts in that"
    steps = sum(path.stat().st_size for path in (tmp_path / "logs").glob("*.joint"))
    assert sum(seen.values()) >= steps
    assert evaluation.figures["length"].mean == pytest.approx(sum(seen.values()) / evaluation.num_episodes)
    assert np.isnan(evaluation.figures["success"].mean)


def test_the_seed_and_the_weights_decide(weights: Path, tmp_path: Path) -> None:
    """The same evaluation twice gives the same figures."""
    first, second = (evaluated(weights, watched(tmp_path / name)) for name in ("first", "second"))
    assert repr(first) == repr(second)


def test_what_an_environment_raises_is_told_in_a_line(weights: Path, tmp_path: Path) -> None:
    """With the environment and the run."""
    with pytest.raises(ValueError, match=r"^environment 2 of run7 raised KeyError: 'player_\d'$"):
        evaluated(weights, watched(tmp_path / "logs", breaks_at=2))
