"""Tensors that are on no CPU, as PyTorch's on a GPU, and vector environments that take and give nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

DEVICE = "elsewhere:0"
moved: list[tuple[int, ...]] = []
"""The shape of each tensor that was copied to host memory."""


class DeviceTensor:
    """An array that nobody can read before it was moved."""

    def __init__(self, values: Any, device: str = DEVICE) -> None:
        self._values, self.device = np.array(values), device

    def __dlpack_device__(self) -> tuple[int, int]:
        """Of a GPU."""
        return (2, 0)

    def __array__(self, *given: Any, **named: Any) -> Any:
        """As PyTorch says it."""
        del given, named
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()")

    def __bool__(self) -> bool:
        raise AssertionError("this would wait for the device")

    __len__ = __iter__ = __getitem__ = __eq__ = __or__ = __bool__  # type: ignore[assignment]
    __hash__ = object.__hash__

    def detach(self) -> DeviceTensor:
        """Itself, outside of all graphs."""
        return self

    def cpu(self) -> HostTensor:
        """The whole of it."""
        moved.append(self._values.shape)
        return HostTensor(self._values.copy())


class HostTensor:
    """The same on the host."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def numpy(self) -> Any:
        """Its memory."""
        return self._values


def asarray(array: Any, *, device: str, copy: bool) -> DeviceTensor:
    """A tensor on a device, as PyTorch makes it."""
    assert copy
    return DeviceTensor(array, device)


def to_torch(array: Any) -> torch.Tensor:
    """A tensor with a graph, if it is of floats, as somebody's simulator may leave it."""
    tensor = torch.asarray(array, copy=True)
    return tensor.requires_grad_() if tensor.is_floating_point() else tensor


def each(function: Callable[[Any], Any], value: Any) -> Any:
    """A structure with what a function makes of each array in it."""
    if isinstance(value, dict):
        return {name: each(function, inner) for name, inner in value.items()}
    if isinstance(value, tuple):
        return tuple(each(function, inner) for inner in value)
    if isinstance(value, np.ndarray) and value.dtype == np.object_:
        made = np.empty(len(value), object)
        for i, inner in enumerate(value):
            made[i] = each(function, inner)
        return made
    return value if value is None else function(value)


KINDS: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "torch": (torch.Tensor, to_torch),
    "elsewhere": (DeviceTensor, DeviceTensor),
}
"""Classes of tensors, and what makes one of an array."""


class Tensored:
    """Some vector environment with tensors in the place of arrays; no subclass of gymnasium's."""

    def __init__(self, envs: Any, kind: str) -> None:
        self.envs, self._class = envs, KINDS[kind][0]
        self._tensors = KINDS[kind][1]
        self.num_envs, self.metadata = envs.num_envs, envs.metadata
        self.single_observation_space = envs.single_observation_space
        self.single_action_space = envs.single_action_space
        self.is_closed = False

    def _array(self, tensor: Any) -> Any:
        assert issubclass(self._class, type(tensor))
        return tensor.numpy() if isinstance(tensor, torch.Tensor) else tensor._values

    def reset(self, **given: Any) -> Any:
        """Takes a mask as a tensor."""
        if "options" in given:
            given["options"] = {name: self._array(mask) for name, mask in given["options"].items()}
        observation, infos = self.envs.reset(**given)
        return each(self._tensors, observation), each(self._tensors, infos)

    def step(self, actions: Any) -> Any:
        """Takes actions as a tensor, and spoils it."""
        values = self._array(actions)
        *answer, infos = self.envs.step(values)
        values[:] = -1
        if "final_obs" in infos and "_final_obs" not in infos:
            infos = infos | {"_final_obs": answer[2] | answer[3]}
        return (*(each(self._tensors, part) for part in answer), each(self._tensors, infos))

    def close(self) -> None:
        """Closes all."""
        self.envs.close()
        self.is_closed = True


assert sys.modules[DeviceTensor.__module__].asarray is asarray
