"""Vector environments that give tensors, on a GPU or not: `OnHost` gives arrays of NumPy in their place.

    actions (arrays) --> tensors on the device of the last observation --> the environments
    what they give --> each tensor that is read, copied to host memory as a whole --> arrays

A tensor is whatever has `__dlpack_device__` and is no array of NumPy: PyTorch's, JAX's, CuPy's. No library of tensors
is imported here, since worker processes whose environments give none must stay small; the one that an environment uses
is loaded when its first tensor comes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np


class OnHost(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """A vector environment, or what is like one, that takes and gives arrays in host memory.

    Where the first observation has no tensors, the environments' own `reset` and `step` take the place of its methods.
    """

    def __init__(self, envs: Any) -> None:
        """Of what `make_envs` gave; what it does not say of itself is None here."""
        self._envs = envs
        self.num_envs = getattr(envs, "num_envs", None)  # type: ignore[assignment]  # checked later, as are all
        self.metadata = getattr(envs, "metadata", None) or {}
        self.single_observation_space = getattr(envs, "single_observation_space", None)  # type: ignore[assignment]
        self.single_action_space = getattr(envs, "single_action_space", None)  # type: ignore[assignment]
        self._like: Any = None  # a tensor of the last observation

    @property
    def unwrapped(self) -> Any:
        """The innermost environments."""
        return getattr(self._envs, "unwrapped", self._envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins episodes; arrays of the options, such as `reset_mask`, are given as tensors."""
        given = {"seed": seed, "options": options if self._like is None else as_tensors(options, self._like)}
        answer = self._envs.reset(**{name: value for name, value in given.items() if value is not None})
        return self._received(answer)  # type: ignore[no-any-return]

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps all."""
        answer = self._envs.step(actions if self._like is None else as_tensors(actions, self._like))
        return self._received(answer)  # type: ignore[no-any-return]

    def _received(self, answer: Any) -> Any:
        """An answer of `reset` or `step`, whose parts are checked later."""
        if not isinstance(answer, tuple) or not answer:
            return answer
        like, self._like = self._like, first_tensor(answer[0])
        if like is None and self._like is None:
            self.reset, self.step = self._envs.reset, self._envs.step  # type: ignore[method-assign]
            return answer
        return tuple(map(on_host, answer))

    def close_extras(self, **kwargs: Any) -> None:
        """Closes the environments."""
        self._envs.close(**kwargs)


class _Entries(Mapping[Any, Any]):
    """A mapping whose tensors are copied to host memory when they are read, once."""

    def __init__(self, entries: Mapping[Any, Any]) -> None:
        self._entries = entries
        self._read: dict[Any, Any] = {}

    def __getitem__(self, name: Any) -> Any:
        if name not in self._read:
            self._read[name] = on_host(self._entries[name])
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return repr(self._entries)


def is_tensor(value: object) -> bool:
    """Whether a value is an array that is not NumPy's."""
    return hasattr(value, "__dlpack_device__") and not isinstance(value, np.ndarray)


def first_tensor(value: Any) -> Any:
    """The first tensor in an observation, or None."""
    if isinstance(value, np.ndarray):
        return None
    if is_tensor(value):
        return value
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else ()
    return next((found for each in inner if (found := first_tensor(each)) is not None), None)


def on_host(value: Any) -> Any:
    """The same with an array for each tensor, in the structure that it has; those of a mapping once they are read.

    An array of a tensor of the CPU may be the same memory. Floats that NumPy lacks, as bfloat16, become float32.
    """
    if isinstance(value, np.ndarray):
        return _each(value) if value.dtype == np.object_ else value
    if isinstance(value, Mapping):
        return _Entries(value)
    if isinstance(value, tuple | list):
        return [on_host(each) for each in value] if isinstance(value, list) else tuple(map(on_host, value))
    return _array_of(value) if is_tensor(value) else value


def _each(objects: Any) -> Any:
    moved = np.empty_like(objects)
    for i, value in enumerate(objects.flat):
        moved.flat[i] = on_host(value)
    return moved


def _array_of(tensor: Any) -> Any:
    if hasattr(tensor, "detach"):  # PyTorch's
        tensor = tensor.detach().cpu()
        try:
            return tensor.numpy()
        except TypeError:
            return tensor.float().numpy()
    return tensor.get() if hasattr(tensor, "get") else np.asarray(tensor)  # CuPy's; JAX's


def as_tensors(value: Any, like: Any) -> Any:
    """The same with a tensor for each array, of the library of the tensor `like` and on its device, of memory apart."""
    if isinstance(value, dict):
        return {name: as_tensors(each, like) for name, each in value.items()}
    if isinstance(value, tuple):
        return tuple(as_tensors(each, like) for each in value)
    if not isinstance(value, np.ndarray):
        return value
    if hasattr(like, "__array_namespace__"):
        return like.__array_namespace__().asarray(value, device=like.device, copy=True)
    for kind in type(like).__mro__:
        for name in (kind.__module__, kind.__module__.partition(".")[0]):
            if hasattr(module := sys.modules[name], "asarray"):
                return module.asarray(value, device=like.device, copy=True)
    raise ValueError(
        f"make_envs gave environments whose tensors are {type(like).__name__}: nothing makes such of arrays"
    )
