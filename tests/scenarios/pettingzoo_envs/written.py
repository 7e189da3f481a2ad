"""Writes a file with parallel environments of somebody's, good ones and faulty ones."""

from __future__ import annotations

from pathlib import Path

FILE = '''
from pathlib import Path

import numpy as np
from gymnasium import spaces

(Path(__file__).parent / "loaded").touch()


class Tag:
    """Runners leave when they are caught, and come back in every tenth step; nobody stays beyond the last."""

    def __init__(self, taggers: int = 2, runners: int = 2, steps: int = 20, reach: float = 0.5):
        self.possible_agents = [f"tagger_{i}" for i in range(taggers)] + [f"runner_{i}" for i in range(runners)]
        self.agents, self.steps, self.reach = [], steps, reach

    def observation_space(self, agent):
        return spaces.Box(-10, 10, (3,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(3)

    def _seen(self, agent):
        others = [self.at[each] - self.at[agent] for each in self.agents if each != agent]
        return np.array([self.at[agent], min(others, key=abs, default=0.0), agent[0] == "t"], np.float32)

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.time, self.agents = 0, list(self.possible_agents)
        self.at = {agent: float(self.rng.uniform(-4, 4)) for agent in self.agents}
        return {agent: self._seen(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions):
        assert sorted(actions) == sorted(self.agents)
        self.time, acted = self.time + 1, list(self.agents)
        for agent, action in actions.items():
            self.at[agent] = min(4.0, max(-4.0, self.at[agent] + 0.3 * (int(action) - 1)))
        hunters = [self.at[agent] for agent in acted if agent[0] == "t"]
        caught = {
            agent: agent[0] == "r" and any(abs(self.at[agent] - at) < self.reach for at in hunters) for agent in acted
        }
        over = self.time >= self.steps
        seen = {agent: self._seen(agent) for agent in acted}
        self.agents = [] if over else [agent for agent in acted if not caught[agent]]
        if self.time % 10 == 0 and not over:
            for agent in self.possible_agents:
                if agent not in acted:
                    self.agents.append(agent)
                    self.at[agent] = float(self.rng.uniform(-4, 4))
                    seen[agent] = self._seen(agent)
        rewards = {agent: sum(caught.values()) if agent[0] == "t" else -float(caught[agent]) for agent in acted}
        ends = {agent: over and not caught[agent] for agent in acted}
        return seen, rewards, caught, ends, {agent: {} for agent in acted}

    def close(self):
        pass


class Solo(Tag):
    def __init__(self):
        super().__init__(taggers=1, runners=0)


class Differs(Tag):
    def observation_space(self, agent):
        return spaces.Box(-10, 10, (3 if agent[0] == "t" else 4,), np.float32)


class Acts(Tag):
    def action_space(self, agent):
        return spaces.Discrete(3 if agent[0] == "t" else 4)


class Text(Tag):
    def observation_space(self, agent):
        return spaces.Text(3)


class NoSpace(Tag):
    def observation_space(self, agent):
        return {"tagger_0": 4}[agent]


class NoEnv:
    pass


class Nobody(Tag):
    def __init__(self):
        super().__init__(0, 0)


class Twins(Tag):
    def __init__(self):
        super().__init__()
        self.possible_agents = ["twin", "twin"]


class Empty(Tag):
    def reset(self, seed=None, options=None):
        answer = super().reset(seed)
        self.agents = []
        return answer


class Stranger(Tag):
    def reset(self, seed=None, options=None):
        answer = super().reset(seed)
        self.agents = ["stranger"]
        return answer


class Unseen(Tag):
    def reset(self, seed=None, options=None):
        return {}, super().reset(seed)[1]


class Beyond(Tag):
    def _seen(self, agent):
        return np.full(3, 70, np.float32)


class Single(Tag):
    def reset(self, seed=None, options=None):
        return super().reset(seed)[0]


class Raises(Tag):
    def __init__(self):
        raise LookupError("the map is not there\\nsecond line")


class Leaves0(Tag):
    def __init__(self):
        __import__("os")._exit(0)


class Aborts(Tag):
    def __init__(self):
        __import__("os").abort()


class NoDisplay(Tag):
    def __init__(self):
        raise RuntimeError("cannot connect to X: DISPLAY is not set")


class InTurn(Tag):
    def agent_iter(self):
        return iter(())


def made():
    return InTurn()


class Louder:
    """A wrapper: twice the rewards."""

    def __init__(self, env):
        self.env = env

    def __getattr__(self, name):
        return getattr(self.env, name)

    def step(self, actions):
        seen, rewards, *ends = self.env.step(actions)
        return seen, {agent: 2 * reward for agent, reward in rewards.items()}, *ends


NUMBER = 3
'''


def write_file(folder: Path) -> Path:
    """Writes `game.py` there, and returns its path."""
    path = folder / "game.py"
    path.write_text(FILE, encoding="utf-8")
    return path
