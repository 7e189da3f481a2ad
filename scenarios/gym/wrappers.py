"""What stands around every environment, and what removes entries of its observation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs


class Seated(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """The outermost wrapper: one seed for all of an environment's randomness, one name for success.

    The seed of `reset` is the seed of the action space too, so that what samples actions repeats. `is_success`, as
    robotics environments call it, is `success` in `info`.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        if seed is not None:
            self.action_space.seed(seed)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Applies one action."""
        answer = self.env.step(action)
        info = answer[-1]
        if isinstance(info, dict) and "is_success" in info:
            info.setdefault("success", info["is_success"])
        return answer


class Without(gymnasium.ObservationWrapper[Any, Any, Any], RecordConstructorArgs):
    """Removes entries of a Dict observation, such as a text that no policy reads."""

    def __init__(self, env: gymnasium.Env[Any, Any], names: Sequence[str]) -> None:
        RecordConstructorArgs.__init__(self, names=names)
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, gymnasium.spaces.Dict):
            raise ValueError(f"without={'+'.join(names)}: its observation is a {type(space).__name__}, no Dict")  # noqa: TRY004
        if unknown := [name for name in names if name not in space.spaces]:
            raise ValueError(
                f"without={unknown[0]}: its observation has no such entry; it has: {', '.join(space.spaces)}"
            )
        self.observation_space = gymnasium.spaces.Dict(
            {key: inner for key, inner in space.spaces.items() if key not in names}
        )

    def observation(self, observation: Any) -> Any:
        """The entries that are left."""
        assert isinstance(self.observation_space, gymnasium.spaces.Dict)
        return {key: observation[key] for key in self.observation_space.spaces}
