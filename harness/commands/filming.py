"""`rlbench evaluate --video`: films the first environment of an evaluation while it is played.

    system.evaluate --> Filmed.make_env, of environment 0 --> FilmedEnv --(render(), after each step)--> Video

The scenario that the system is given makes that environment; the system itself knows nothing of it. Pictures are
written as they come, by the process that steps the environment. Before anything is played, an environment is made,
reset and drawn once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbench.harness.contract.agents import agents_per_env, num_rows
from rlbench.harness.contract.device import Device, Place, Seat
from rlbench.harness.contract.extras import Draws
from rlbench.harness.contract.scenario import Scenario
from rlbench.harness.plan import registry
from rlbench.harness.processes.raised import in_a_line
from rlbench.reports.exports.video import SUFFIXES, Video
from rlbench.results.records.store import check_writable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

PACKAGE = "av"
MOST_PICTURES = 3600
"""Where a video ends: after two minutes, at 30 pictures per second."""
PER_SECOND = 30.0
"""Where an environment's metadata do not say `render_fps`."""
FASTEST = 240.0
RULE = "an array of uint8 [H, W, 3]"


@dataclass(kw_only=True, slots=True)
class Film:
    """A video of an environment."""

    path: Path
    per_second: float = field(default=PER_SECOND, init=False)
    num_pictures: int = field(default=0, init=False)
    num_episodes: int = field(default=0, init=False)
    """Those of which there are pictures; the last one may be cut."""
    _video: Video | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Raises ValueError unless such a file can be written."""
        if self.path.suffix not in SUFFIXES:
            raise ValueError(f"--video {self.path}: must end in {' or '.join(SUFFIXES)}")
        if find_spec(PACKAGE) is None:
            raise ValueError(f"--video {self.path}: needs the package {PACKAGE}; pip install 'rlbench[video]'")
        if self.path.is_dir() or not self.path.parent.is_dir():
            what = "is a folder" if self.path.is_dir() else f"there is no folder {self.path.parent}"
            raise ValueError(f"--video {self.path}: {what}; name a file")
        check_writable(self.path.parent)

    @property
    def is_full(self) -> bool:
        """Whether there are as many pictures as a video may have."""
        return self.num_pictures >= MOST_PICTURES

    def as_json(self) -> dict[str, Any]:
        """What the video is, for scripts."""
        return {
            "file": str(self.path),
            "episodes": self.num_episodes,
            "pictures": self.num_pictures,
            "per_second": self.per_second,
        }

    def told(self) -> str:
        """What the video is, in a line."""
        episodes = "1 episode" if self.num_episodes == 1 else f"{self.num_episodes:,} episodes"
        pictures = f"{self.num_pictures:,} pictures, {self.per_second:g} per second"
        most = ", as many as a video may have" if self.is_full else ""
        return f"{self.path}: {episodes} of environment 0, {pictures}{most}"

    @contextmanager
    def of(self, scenario: Scenario, device: Device) -> Iterator[Scenario]:
        """A scenario whose first environment is filmed; the video is there when the context ends without an exception.

        Raises ValueError for a scenario that draws nothing, and where no picture was taken.
        """
        drawn = self._drawn(scenario, device)
        with Video(self.path, self.per_second) as self._video:
            yield Filmed(drawn, self)
            if not self.num_pictures:
                raise ValueError(f"--video {self.path}: the system has not played its first environment by itself")

    def begin_episode(self) -> None:
        """Called before the first picture of an episode."""
        self.num_episodes += not self.is_full

    def take(self, env: Any) -> None:
        """Adds a picture of what there is to see in an environment now, unless there are enough."""
        if not self.is_full:
            assert self._video is not None
            self._video.add(_picture(env))
            self.num_pictures += 1

    def _drawn(self, scenario: Scenario, device: Device) -> Scenario:
        """The scenario as its environments draw; one is tried."""
        try:
            drawn = scenario.drawn() if isinstance(scenario, Draws) else scenario
            with closing(_first_of(drawn, device)) as env:
                env.reset(seed=0)
                _picture(env)
                self.per_second = _per_second(env)
        except Exception as problem:
            why = str(problem) if isinstance(problem, ValueError) else in_a_line(problem)
            why = "its environments have no render()" if isinstance(problem, NotImplementedError) else why
            draw = ", ".join(registry.drawing())
            text = f"--video {self.path}: {scenario.name} cannot be drawn ({why}); scenarios that draw: {draw}"
            raise ValueError(text) from problem
        return drawn


class Filmed:
    """A scenario whose first environment is filmed; in all else it is the scenario."""

    def __init__(self, scenario: Scenario, film: Film) -> None:
        self._scenario, self._film = scenario, film

    def __getattr__(self, name: str) -> Any:
        """The scenario's."""
        return getattr(self._scenario, name)

    def make_env(self, seat: Seat) -> Any:
        """Makes one environment."""
        env = self._scenario.make_env(seat)
        return FilmedEnv(env, self._film) if seat.global_index == 0 else env

    def make_envs(self, seats: Sequence[Seat]) -> Any:
        """Makes an environment of several agents, or a batch of environments, which is not filmed."""
        envs = self._scenario.make_envs(seats)  # type: ignore[attr-defined]  # only scenarios that have it are asked
        is_first = seats[0].global_index == 0 and agents_per_env(self._scenario) > 1
        return FilmedEnv(envs, self._film) if is_first else envs


class FilmedEnv:
    """An environment of which a picture is taken before the first step of an episode and after each step.

    An episode of which no step is played, as after the last one of several agents, is not in the film.
    """

    def __init__(self, env: Any, film: Film) -> None:
        self._env, self._film = env, film
        self._is_reset = False

    def __getattr__(self, name: str) -> Any:
        """The environment's."""
        return getattr(self._env, name)

    def reset(self, **arguments: Any) -> Any:
        """Resets it."""
        answer = self._env.reset(**arguments)
        self._is_reset = True
        return answer

    def step(self, action: Any) -> Any:
        """Steps it."""
        if self._is_reset:
            self._is_reset = False
            self._film.begin_episode()
            self._film.take(self._env)
        answer = self._env.step(action)
        self._film.take(self._env)
        return answer


def _first_of(scenario: Scenario, device: Device) -> Any:
    num, agents = num_rows(scenario), agents_per_env(scenario)
    place = Place(rank=0, num_ranks=1, local_rank=0)
    seats = [Seat(place=place, index=index, num_envs=num, seed=0, device=device) for index in range(agents)]
    if agents > 1:
        return scenario.make_envs(seats)  # type: ignore[attr-defined]  # those of several agents have it
    return scenario.make_env(seats[0])


def _picture(env: Any) -> npt.NDArray[np.uint8]:
    """What there is to see in an environment now, [H, W, 3]. Raises ValueError where `render` gives anything else."""
    import numpy as np

    render = getattr(env, "render", None)
    if render is None:
        raise NotImplementedError
    given = render()
    if given is None:
        raise ValueError(f"its render() gave None: it must give {RULE}")
    picture = np.asarray(given)
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3 or not picture.size:
        raise ValueError(f"its render() gave {picture.dtype} {list(picture.shape)}: it must give {RULE}")
    return np.ascontiguousarray(picture)


def _per_second(env: Any) -> float:
    metadata = getattr(env, "metadata", None)
    given = metadata.get("render_fps") if isinstance(metadata, dict) else None
    if isinstance(given, int | float) and math.isfinite(given) and given > 0:
        return min(float(given), FASTEST)
    return PER_SECOND
