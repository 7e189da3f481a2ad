from __future__ import annotations

from collections import OrderedDict
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, OneOf, Sequence, Text, Tuple
from hypothesis import given
from hypothesis import strategies as st

from rlbench.systems.spaces.observations import leaves_of

LEAVES: list[tuple[gymnasium.Space[Any], tuple[int, ...], type]] = [
    (Box(-1, 1, (2, 3), np.float64), (2, 3), np.float64),
    (Box(0, 255, (), np.uint8), (), np.uint8),
    (Discrete(5, start=-2), (), np.int64),
    (MultiDiscrete(np.array([[2, 3], [4, 5]])), (2, 2), np.int64),
    (MultiDiscrete([2, 3], dtype=np.int32), (2,), np.int64),
    (MultiBinary((2, 3)), (2, 3), np.int8),
    (MultiBinary(4), (4,), np.int8),
]
NESTED = Dict(
    OrderedDict(
        z=Box(0, 1, (2,)),
        a=Tuple((Discrete(3), Dict({"y": MultiBinary(2), "x": MultiDiscrete([2, 2])}))),
    )
)


@pytest.mark.parametrize(("space", "shape", "dtype"), LEAVES)
def test_a_leaf_alone(space: gymnasium.Space[Any], shape: tuple[int, ...], dtype: type) -> None:
    """A bare space is one leaf called `observation`, whose value is the whole observation."""
    (leaf,) = leaves_of(space)
    assert (leaf.key, leaf.path, leaf.space) == ("observation", (), space)
    assert (leaf.shape, leaf.dtype) == (shape, np.dtype(dtype))
    sample = space.sample()
    assert leaf.read(sample) is sample
    assert np.shape(sample) == shape


def test_nested() -> None:
    """Leaves come depth first in the order of the entries, and are called by their paths."""
    leaves = leaves_of(NESTED)
    assert [leaf.key for leaf in leaves] == ["z", "a/0", "a/1/x", "a/1/y"]
    assert leaves[3].path == ("a", 1, "y")
    sample = NESTED.sample()
    assert [leaf.read(sample) is value for leaf, value in zip(leaves, _values(sample), strict=True)] == [True] * 4


def _values(sample: Any) -> list[Any]:
    return [sample["z"], sample["a"][0], sample["a"][1]["x"], sample["a"][1]["y"]]


@pytest.mark.parametrize("space", [Dict({}), Tuple(()), Dict({"a": Tuple(())})])
def test_empty(space: gymnasium.Space[Any]) -> None:
    """A space without leaves gives none."""
    assert leaves_of(space) == ()


@pytest.mark.parametrize(
    "space", [Text(3), Graph(Box(0, 1, (2,)), None), Sequence(Discrete(2)), OneOf([Discrete(2), Discrete(3)])]
)
def test_refuses(space: gymnasium.Space[Any]) -> None:
    """What has no fixed size is refused in one line that names it."""
    for where, key in ((space, "observation"), (Dict({"a": Tuple((Discrete(2), space))}), "a/1")):
        with pytest.raises(ValueError, match=f"^observation '{key}': must be .*, is {type(space).__name__}") as refusal:
            leaves_of(where)
        assert "\n" not in str(refusal.value)


def test_refuses_equal_keys() -> None:
    """Two leaves of one name would have one column."""
    with pytest.raises(ValueError, match="observation 'a/b': must be one entry, are two"):
        leaves_of(Dict({"a/b": Discrete(2), "a": Dict({"b": Discrete(2)})}))


any_leaf = st.sampled_from([space for space, *_ in LEAVES])
any_space = st.recursive(
    any_leaf,
    lambda inner: st.lists(inner, max_size=3).map(Tuple) | st.dictionaries(st.text("abc", min_size=1), inner).map(Dict),
    max_leaves=8,
)


@given(any_space, st.integers(0, 1000))
def test_leaves_hold_an_observation(space: gymnasium.Space[Any], seed: int) -> None:
    """Of any space, every leaf reads a value of its shape that its dtype holds, and no number is left out."""
    space.seed(seed)
    sample = space.sample()
    leaves = leaves_of(space)
    for leaf in leaves:
        value = leaf.read(sample)
        assert np.shape(value) == leaf.shape
        assert (np.asarray(value, leaf.dtype) == value).all()
    assert len({leaf.key for leaf in leaves}) == len(leaves)
    assert sum(int(np.prod(leaf.shape)) for leaf in leaves) == _count(sample)


def _count(sample: Any) -> int:
    if isinstance(sample, dict):
        return sum(map(_count, sample.values()))
    return sum(map(_count, sample)) if isinstance(sample, tuple) else int(np.size(sample))
