from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, OneOf, Sequence, Space, Text, Tuple
from gymnasium.vector.utils import batch_space, iterate
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rlbench.systems.spaces.actions import BOUNDS, ActionLayout, Bits, Bounds, Categorical, Numbers, Part

HAND = Dict(
    {
        "move": Discrete(3, start=-1),
        "press": MultiBinary((2, 2)),
        "aim": Tuple((Box(-1.0, 2.0, (2,)), MultiDiscrete(np.array([[2, 3]]), start=np.array([[5, 6]])))),
    }
)


def floats() -> st.SearchStrategy[Box]:
    """Boxes of numbers in every precision, with bounds of their own on each number, or without some."""
    return st.builds(
        lambda low, width, dtype, is_open: Box(
            np.array([[-np.inf if is_open else low], [low]], dtype),
            np.array([[low + width], [np.inf if is_open else low + width]], dtype),
            dtype=dtype,
        ),
        st.floats(-50, 50, width=16),
        st.floats(1, 50, width=16),
        st.sampled_from([np.float16, np.float32, np.float64]),
        st.booleans(),
    )


def leaves() -> st.SearchStrategy[Space[Any]]:
    """Spaces of one kind, with starts, shapes and dtypes of their own."""
    starts = st.integers(-3, 3)
    return st.one_of(
        st.builds(lambda num, start: Discrete(num, start=start), st.integers(1, 5), starts),
        st.builds(lambda num, start: Discrete(num, start=start, dtype=np.int8), st.integers(1, 5), starts),
        st.builds(lambda nums: MultiDiscrete(nums, start=[2] * len(nums)), st.lists(st.integers(1, 4), min_size=1)),
        st.sampled_from([MultiBinary(3), MultiBinary((2, 2))]),
        st.sampled_from([Box(0, 255, (2,), np.uint8), Box(-3, 3, (), np.int64), Box(-np.inf, np.inf, (1,), np.int64)]),
        st.sampled_from([Box(0.1, 0.3, (2, 2), np.float64), Box(-1, 1, ()), Box(-np.inf, np.inf, (3,))]),
        floats(),
    )


SPACES = st.recursive(
    leaves(),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(lambda of: Tuple(tuple(of)))
        | st.dictionaries(st.sampled_from("zyxw"), inner, min_size=1, max_size=3).map(Dict)
    ),
    max_leaves=6,
)


def rows_of(layout: ActionLayout, num_rows: int, rng: np.random.Generator) -> NDArray[Any]:
    """Rows of every kind: first and last choices, and numbers far outside of all bounds."""
    columns: list[NDArray[Any]] = []
    for part in layout.parts:
        match part:
            case Categorical():
                columns.append(rng.choice(np.array([0, part.num - 1, part.num // 2]), (num_rows, 1)))
            case Bits():
                columns.append(rng.integers(2, size=(num_rows, part.num)))
            case Numbers():
                columns.append(rng.normal(size=(num_rows, part.size)) * rng.choice([0.1, 1, 30, 1e30]))
    rows: NDArray[Any] = np.concatenate(columns, 1).astype(layout.dtype)
    return rows


def can_squash(part: Part) -> bool:
    """Whether it has bounds; what an integer Box without any has instead, its type's limits, lies above 1e18."""
    return not isinstance(part, Numbers) or bool(np.abs([part.low, part.high]).max() < 1e18)


def same(one: Any, other: Any) -> bool:
    """Whether two actions are of the same type, dtypes and values, all the way down."""
    match one:
        case dict():
            return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
        case tuple():
            return len(one) == len(other) and all(map(same, one, other))
        case _:
            return bool(np.array_equal(one, other)) and np.asarray(one).shape == np.asarray(other).shape


@settings(max_examples=150, deadline=None)
@given(SPACES, st.sampled_from(BOUNDS), st.integers(0, 2**32 - 1))
def test_every_row_is_an_action(space: Space[Any], bounds: Bounds, seed: int) -> None:
    """Of every row the environment gets an action of its space, and of rows the same, batched as gymnasium does it."""
    if bounds == "tanh" and not all(can_squash(part) for part in ActionLayout.of(space).parts):
        with pytest.raises(ValueError, match="finite low below a finite high"):
            ActionLayout.of(space, bounds)
        return
    layout = ActionLayout.of(space, bounds)
    rows = rows_of(layout, 4, np.random.default_rng(seed))
    assert rows.shape == (4, layout.size)
    batch = layout.to_env(rows)
    assert batch in batch_space(space, 4)
    for row, of in zip(rows, iterate(batch_space(space, 4), batch), strict=True):
        action = layout.to_env(row)
        assert action in space
        assert same(action, of)


def test_parts() -> None:
    """A row holds the parts in the order of the space, and what the environment gets has its own names and starts."""
    layout = ActionLayout.of(HAND)
    numbers, *rest = layout.parts
    assert isinstance(numbers, Numbers)
    assert (numbers.low.tolist(), numbers.high.tolist(), numbers.shape) == ([-1.0] * 2, [2.0] * 2, (2,))
    assert rest[:2] == [Categorical(num=2, start=5), Categorical(num=3, start=6)]
    assert rest[2:] == [Categorical(num=3, start=-1), Bits(num=4)]
    assert (layout.size, layout.dtype, layout.is_discrete) == (9, np.float32, False)
    action = layout.to_env(np.array([0.5, 3, 1, 2, 0, 0, 1, 1, 0], np.float32))
    assert action["move"] == -1
    assert action["press"].tolist() == [[0, 1], [1, 0]]
    aim, switches = action["aim"]
    assert (aim.tolist(), switches.tolist()) == ([0.5, 2.0], [[6, 8]])


def test_order_of_entries() -> None:
    """Entries come in the order that `Dict.spaces` has."""
    space = Dict({"b": Discrete(2), "a": Box(0, 1, (2,)), "c": MultiBinary(1)})
    numbers = iter(np.arange(4, dtype=np.float32) / 4)
    expected = {key: [next(numbers) for _ in range(2 if key == "a" else 1)] for key in space.spaces}
    action = ActionLayout.of(space).to_env(np.arange(4, dtype=np.float32) / 4)
    assert list(action) == list(space.spaces)
    assert action["a"].tolist() == expected["a"]


def test_one_discrete() -> None:
    """Of a Discrete the environment gets a Python int; a vector environment gets an array of its dtype."""
    layout = ActionLayout.of(Discrete(4, start=10))
    assert layout.is_discrete
    assert (layout.parts, layout.size, layout.dtype) == ((Categorical(num=4, start=10),), 1, np.int64)
    action = layout.to_env(np.array([3]))
    assert type(action) is int
    assert action == 13
    batch = layout.to_env(np.array([[0], [3]]))
    assert (batch.tolist(), batch.dtype) == ([10, 13], np.int64)
    one_entry = ActionLayout.of(MultiDiscrete([4]))
    assert one_entry.is_discrete
    assert one_entry.to_env(np.array([3])).tolist() == [3]


def test_clip_and_tanh() -> None:
    """Numbers are cut to their bounds, or squashed into them; those of an integer Box are rounded."""
    space = Box(np.array([-2, 0], np.float32), np.array([2, 1], np.float32))
    row = np.array([1.5, -0.5], np.float32)
    assert ActionLayout.of(space).to_env(row).tolist() == [1.5, 0.0]
    expected = np.array([-2, 0]) + (np.tanh(row.astype(float)) + 1) / 2 * np.array([4, 1])
    np.testing.assert_allclose(ActionLayout.of(space, "tanh").to_env(row), expected, rtol=1e-6)
    levels = ActionLayout.of(Box(0, 10, (3,), np.uint8))
    action = levels.to_env(np.array([2.6, -4, 300], np.float32))
    assert (action.tolist(), action.dtype) == ([3, 0, 10], np.uint8)
    least, most = ActionLayout.of(Box(-np.inf, np.inf, (2,), np.int64)).to_env(np.array([-1e30, 1e30], np.float32))
    assert least < -(2**62) < 2**62 < most


def test_actions_are_their_own() -> None:
    """An action does not change when the memory that its row lies in is written again; a layout can be sent away."""
    layout = pickle.loads(pickle.dumps(ActionLayout.of(HAND)))  # noqa: S301  our own
    rows = rows_of(layout, 3, np.random.default_rng(0))
    action, batch, kept = layout.to_env(rows[0]), layout.to_env(rows), rows.copy()
    rows[:] = 0
    assert same(action, layout.to_env(kept[0]))
    assert same(batch, layout.to_env(kept))


@pytest.mark.parametrize(
    ("space", "says"),
    [
        (Text(5), "action space Text"),
        (Graph(Box(0, 1, (2,)), None), "action space Graph"),
        (Sequence(Discrete(2)), "action space Sequence"),
        (OneOf((Discrete(2), Discrete(3))), "action space OneOf"),
        (Dict(hand=Tuple((Discrete(2), Text(5)))), "action space 'hand/1', Text"),
        (Tuple(()), "nothing to choose"),
    ],
)
def test_spaces_that_no_policy_acts_in(space: gymnasium.Space[Any], says: str) -> None:
    """They are refused in one line that names the space, where it lies, and the rule."""
    with pytest.raises(ValueError, match=says) as refused:
        ActionLayout.of(space)
    assert "\n" not in str(refused.value)
    assert "must be a Discrete, MultiDiscrete, MultiBinary or Box" in str(refused.value)


@pytest.mark.parametrize(
    "space",
    [
        Box(-np.inf, np.inf, (40, 2)),
        Box(np.array([-1, -np.inf], np.float32), np.ones(2, np.float32)),
        Box(np.zeros(2, np.float32), np.array([1, 0], np.float32)),
        Box(-1e300, 1e300, (1,), np.float64),
        Box(-np.inf, np.inf, (1,), np.int64),
    ],
)
def test_tanh_needs_bounds(space: Box) -> None:
    """A tanh squashes between two bounds: without them it is refused in one line, and `clip` is not."""
    with pytest.raises(ValueError, match=r"'arm', Box.*finite low below a finite high") as refused:
        ActionLayout.of(Dict(arm=space), "tanh")
    assert "\n" not in str(refused.value)
    assert ActionLayout.of(Dict(arm=space)).size == space.low.size


def test_unknown_bounds() -> None:
    """An unknown way to keep to bounds is refused, and the known ones are listed."""
    with pytest.raises(ValueError, match="'wrap': unknown; must be one of: clip, tanh"):
        ActionLayout.of(Discrete(2), "wrap")  # type: ignore[arg-type]
