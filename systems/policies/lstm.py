"""An LSTM layer for CPUs, over packed sequences or one step: what `torch.nn.LSTM` computes, to rounding.

On a CPU torch takes packed sequences step by step and, in each step of the backward pass, writes a gradient of the
size of the whole mini-batch; its fused operation wants sequences padded to one length. Here the inputs, and each of the
weights' gradients, take one product over all samples; each time step only takes the recurrent product of the sequences
that have this step.

Weights are those of a layer of `torch.nn.LSTM`, in its order: input [4 U, F], recurrent [4 U, U], two biases [4 U].
The gates' order is entry, forget, candidate, exit.

Letters: N environments, M samples in packed order (see `systems.learn.sequences`), K sequences, F features, U units.
"""

from __future__ import annotations

from collections.abc import Sequence as Listed
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def lstm_layer(inputs: Tensor, batch_sizes: list[int], state: tuple[Tensor, Tensor], weights: Listed[Tensor]) -> Tensor:
    """One layer over whole sequences.

    Args:
        inputs: float [M, F], in packed order.
        batch_sizes: how many sequences have a first, second, ... step; the sum is M.
        state: hidden values and cells before each sequence, each [K, U], the longest sequence first; without gradient.
        weights: of the layer.

    Returns:
        Hidden values [M, U] after each step.
    """
    assert not any(tensor.requires_grad for tensor in state), "sequences begin with stored states"
    of_input, recurrent, one_bias, other_bias = weights
    hidden: Tensor = _Layer.apply(inputs, *state, of_input, recurrent, one_bias + other_bias, batch_sizes)  # type: ignore[no-untyped-call]
    return hidden


def lstm_step(inputs: Tensor, state: tuple[Tensor, Tensor], weights: Listed[Tensor]) -> tuple[Tensor, Tensor]:
    """One step of one layer, without gradients.

    It works on columns: with few of them, the product weights x columns reads the weights in memory order. With 16
    environments and 512 units this takes at most half the time of torch's fused operation.

    Args:
        inputs: float [N, F].
        state: hidden values and cells before the step, each [N, U].
        weights: of the layer.

    Returns:
        Hidden values and cells after the step, each [N, U].
    """
    of_input, recurrent, one_bias, other_bias = weights
    hidden, cells = state
    gates = torch.addmm((one_bias + other_bias).unsqueeze(1), of_input, inputs.t()).addmm_(recurrent, hidden.t())
    entry, forget, candidate, exit_ = gates.chunk(4)  # [U, N]
    new_cells = forget.sigmoid_().mul_(cells.t()).addcmul_(entry.sigmoid_(), candidate.tanh_())
    return exit_.sigmoid_().mul_(new_cells.tanh()).t(), new_cells.t()


class _Layer(torch.autograd.Function):
    """The layer, with its gradient written out."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        first_hidden: Tensor,
        first_cells: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias: Tensor,
        sizes: list[int],
    ) -> Tensor:
        """Fills `gates` [M, 4 U], first with the inputs' part for all samples, then step by step."""
        num_units = first_hidden.shape[1]
        gates = torch.addmm(bias, inputs, weight_ih.t())
        hidden, cells, squashed = (gates.new_empty(len(inputs), num_units) for _ in range(3))  # squashed: tanh(cells)
        before, cells_before = first_hidden, first_cells
        for gate, now, cell, tanh in zip(
            *(torch.split(x, sizes) for x in (gates, hidden, cells, squashed)), strict=True
        ):
            num = len(gate)
            gate.addmm_(before[:num], weight_hh.t())
            gate[:, : 2 * num_units].sigmoid_()
            gate[:, 2 * num_units : 3 * num_units].tanh_()
            gate[:, 3 * num_units :].sigmoid_()
            entry, forget, candidate, exit_ = gate.chunk(4, 1)
            torch.mul(forget, cells_before[:num], out=cell).addcmul_(entry, candidate)
            torch.tanh(cell, out=tanh)
            torch.mul(exit_, tanh, out=now)
            before, cells_before = now, cell
        ctx.sizes = sizes
        ctx.save_for_backward(inputs, first_hidden, first_cells, weight_ih, weight_hh, gates, hidden, cells, squashed)
        return hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_hidden: Tensor) -> tuple[Tensor | None, ...]:
        """Goes from the last step to the first, and then computes the weights' gradients."""
        inputs, first_hidden, first_cells, weight_ih, weight_hh, gates, hidden, cells, squashed = ctx.saved_tensors
        sizes: list[int] = ctx.sizes
        num_units = hidden.shape[1]
        entry, forget, candidate, exit_ = gates.chunk(4, 1)
        # Factors for the gradients of cells (three gates) and of hidden values (the fourth).
        factors = torch.empty_like(gates)
        of_entry, of_forget, of_candidate, of_exit = factors.chunk(4, 1)
        torch.mul(candidate, entry, out=of_entry).mul_(1 - entry)
        torch.mul(_before(first_cells, cells, sizes), forget, out=of_forget).mul_(1 - forget)
        torch.mul(entry, 1 - candidate.square(), out=of_candidate)
        torch.mul(squashed, exit_, out=of_exit).mul_(1 - exit_)
        into_cells = exit_ * (1 - squashed.square())

        grad_gates = factors  # in place
        columns = (grad_hidden.clone(), into_cells, forget, grad_gates)
        after: tuple[Tensor, Tensor] | None = None  # gradients from the next step: of hidden values and of cells
        for now, cell, kept, gate in reversed(list(zip(*(torch.split(x, sizes) for x in columns), strict=True))):
            if after is not None:
                now[: len(after[0])] += after[0]
            grad_cell = now * cell
            if after is not None:
                grad_cell[: len(after[1])] += after[1]
            gate[:, : 3 * num_units].view(-1, 3, num_units).mul_(grad_cell.unsqueeze(1))
            gate[:, 3 * num_units :].mul_(now)
            after = gate @ weight_hh, grad_cell.mul_(kept)
        transposed = grad_gates.t()
        return (
            grad_gates @ weight_ih if ctx.needs_input_grad[0] else None,
            None,
            None,
            transposed @ inputs,
            transposed @ _before(first_hidden, hidden, sizes),
            grad_gates.sum(0),
            None,
        )


def _before(first: Tensor, steps: Tensor, sizes: list[int]) -> Tensor:
    """The row one step earlier in each sample's sequence, [M, U]; that of `first` at the first step."""
    parts = torch.split(steps, sizes)
    return torch.cat([first, *(part[:size] for part, size in zip(parts, sizes[1:], strict=False))])
