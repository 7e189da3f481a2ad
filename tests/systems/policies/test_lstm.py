from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from rlbench.systems.policies.lstm import lstm_layer, lstm_step

NUM_FEATURES, NUM_UNITS = 5, 3


def layer_and_case(seed: int, sizes: list[int]) -> tuple[nn.LSTM, Tensor, Tensor, Tensor]:
    """(torch's layer with random weights, inputs [M, F], hidden values and cells [K, U]), in float64."""
    generator = torch.Generator().manual_seed(seed)
    core = nn.LSTM(NUM_FEATURES, NUM_UNITS).double()
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.normal_(generator=generator)
    inputs = torch.randn(sum(sizes), NUM_FEATURES, dtype=torch.float64, generator=generator).requires_grad_()
    hidden, cells = torch.randn(2, sizes[0], NUM_UNITS, dtype=torch.float64, generator=generator)
    return core, inputs, hidden, cells


@pytest.mark.parametrize("sizes", [[1], [4], [3, 3, 3], [5, 4, 4, 2, 1, 1], [2, 1]])
def test_layer_is_torchs(sizes: list[int]) -> None:
    """Outputs and all gradients are those of `torch.nn.LSTM` on the same packed sequences."""
    core, inputs, hidden, cells = layer_and_case(len(sizes), sizes)
    weights = core.all_weights[0]
    ours = lstm_layer(inputs, sizes, (hidden, cells), weights)
    packed = PackedSequence(inputs, torch.tensor(sizes))
    theirs = core(packed, (hidden.unsqueeze(0), cells.unsqueeze(0)))[0].data
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    outward = torch.randn(ours.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    of_all = [inputs, *weights]
    for got, expected in zip(
        torch.autograd.grad(ours, of_all, outward), torch.autograd.grad(theirs, of_all, outward), strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-11)


def test_backward_leaves_the_gradient_it_gets() -> None:
    """The gradient that comes in is not written to: autograd may have handed it to others as well."""
    core, inputs, hidden, cells = layer_and_case(0, [3, 2])
    outward = torch.ones(5, NUM_UNITS, dtype=torch.float64)
    torch.autograd.grad(lstm_layer(inputs, [3, 2], (hidden, cells), core.all_weights[0]), inputs, outward)
    assert (outward == 1).all()


def test_inputs_without_gradient() -> None:
    """Weights get the same gradients where the inputs need none."""
    core, inputs, hidden, cells = layer_and_case(0, [3, 2])
    weights = core.all_weights[0]
    some, others = (
        torch.autograd.grad(lstm_layer(x, [3, 2], (hidden, cells), weights).sum(), weights)
        for x in (inputs, inputs.detach())
    )
    assert all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


@pytest.mark.parametrize("num", [1, 4, 16])
def test_step_is_torchs(num: int) -> None:
    """One step gives torch's hidden values and cells, and leaves the state that it began with."""
    core, inputs, hidden, cells = layer_and_case(num, [num])
    before = hidden.clone(), cells.clone()
    with torch.no_grad():
        ours = lstm_step(inputs, (hidden, cells), core.all_weights[0])
        _, theirs = core(inputs.unsqueeze(0), (hidden.unsqueeze(0), cells.unsqueeze(0)))
    for got, expected, kept, old in zip(ours, theirs, (hidden, cells), before, strict=True):
        torch.testing.assert_close(got, expected[0], rtol=1e-12, atol=1e-12)
        assert torch.equal(kept, old)
