"""Writes a package with an environment and wrappers of somebody's, `my_package`, and a file with a class."""

from __future__ import annotations

from pathlib import Path

PACKAGE = """
import gymnasium
import numpy as np


class Warehouse(gymnasium.Env):
    def __init__(self, size: int = 4, speed: float = 1.0, shelves=None, names: str = ""):
        self.size, self.speed, self.shelves, self.names = size, speed, shelves, names
        self.observation_space = gymnasium.spaces.Box(-100.0, 100.0, (3,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(size if names == "wide" else 4)

    def _seen(self):
        return np.array([self.at, self.goal, self.size], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.goal = self.np_random.uniform(-1, 1, 2)
        return self._seen(), {}

    def step(self, action):
        self.at += (action - 1.5) * 0.1 * self.speed
        done = abs(self.at - self.goal) < 0.2
        return self._seen(), -abs(self.at - self.goal), bool(done), False, {"is_success": bool(done)}


class Norm(gymnasium.ObservationWrapper):
    def observation(self, observation):
        return (observation / 10).astype(np.float32)


class Picky(gymnasium.Wrapper):
    def __init__(self, env):
        raise LookupError("no shelf")


gymnasium.register("Warehouse-v0", "my_package:Warehouse", max_episode_steps=30)
"""

FAULTY = """
import gymnasium
import numpy as np
from pathlib import Path

(Path(__file__).parent / "loaded").touch()


class Good(gymnasium.Env):
    def __init__(self, low: int = 0):
        self.observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.random(2).astype(np.float32), {}

    def step(self, action):
        return self.reset()[0], 1.0, False, False, {}


class NoEnv:
    pass


class Raises(Good):
    def __init__(self):
        raise LookupError("the map is not there\\nsecond line")


class Leaves(Good):
    def __init__(self):
        raise SystemExit("bye")


class NoDisplay(Good):
    def __init__(self):
        raise RuntimeError("cannot connect to X: DISPLAY is not set")


class NoSpaces(Good):
    def __init__(self):
        self.observation_space = self.action_space = 4


class Text(Good):
    def __init__(self):
        super().__init__()
        self.observation_space = gymnasium.spaces.Dict(
            {"seen": self.observation_space, "told": gymnasium.spaces.Text(9)}
        )

    def reset(self, *, seed=None, options=None):
        return {"seen": super().reset(seed=seed)[0], "told": "go"}, {}

    def step(self, action):
        return self.reset()[0], 1.0, False, False, {}


class Acts(Good):
    def __init__(self):
        super().__init__()
        self.action_space = gymnasium.spaces.Text(9)


class Counts(Good):
    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.int64), {}


class Beyond(Good):
    def reset(self, *, seed=None, options=None):
        return np.full(2, 7, np.float32), {}


class Single(Good):
    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32)


class ResetRaises(Good):
    def reset(self, *, seed=None, options=None):
        raise ZeroDivisionError("no cells")


class Needs(Good):
    def __init__(self, size, speed, color="red"):
        super().__init__()


class NoSeed(Good):
    def reset(self):
        return super().reset()


class CloseRaises(Good):
    def close(self):
        raise OSError("still open")


class Leaves0(Good):
    def __init__(self):
        import os

        os._exit(0)


class Aborts(Good):
    def reset(self, *, seed=None, options=None):
        import os

        os.abort()


class Hangs(Good):
    def __init__(self):
        import subprocess

        Path("sleeper").write_text(str(subprocess.Popen(["sleep", "1000"]).pid))
        while True:
            pass


def a_function():
    return Good()
"""


def write_package(folder: Path) -> Path:
    """Makes `my_package` in a folder, which is returned."""
    (folder / "my_package").mkdir()
    (folder / "my_package" / "__init__.py").write_text(PACKAGE, encoding="utf-8")
    return folder


def write_file(folder: Path) -> Path:
    """Makes `mine.py`, which leaves a file `loaded` beside it wherever it is run; returns its path."""
    path = folder / "mine.py"
    path.write_text(FAULTY, encoding="utf-8")
    return path
