from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from torch import Tensor, nn
from torch import distributions as published

from rlbench.systems.policies.distributions import ActionDistribution, ActionHead, _nodes
from rlbench.systems.spaces.actions import BOUNDS, STDS, ActionLayout, Bounds, Std

NUM_UNITS = 5
LOW, HIGH = np.array([-1, 0, -3], np.float32), np.array([1, 4, -2.5], np.float32)
ARM = Box(LOW, HIGH)
EVERYTHING = Tuple((Discrete(3), ARM, MultiBinary(2), MultiDiscrete([2, 4]), Dict(end=Box(-2, 2, ()))))
SPACES: dict[str, Space[Any]] = {
    "choice": Discrete(4),
    "choices": MultiDiscrete([3, 2]),
    "bits": MultiBinary(3),
    "numbers": ARM,
    "everything": EVERYTHING,
}


def head_of(space: Space[Any], *, seed: int = 0, bounds: Bounds = "clip", std: Std = "shared") -> ActionHead:
    """A head in float64 whose outputs are far from uniform."""
    head = ActionHead(ActionLayout.of(space, bounds), NUM_UNITS, std).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_(0, 0.4, generator=generator)
    return head


def hidden_of(num: int) -> Tensor:
    """Hidden values [num, U], always the same."""
    return torch.randn(num, NUM_UNITS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


Pieces = list[tuple[published.Distribution, int]]


def literal(head: ActionHead, hidden: Tensor) -> Pieces:
    """What torch.distributions makes of the same outputs: a distribution of each part, and its columns of a row."""
    outputs, pieces, done = nn.functional.linear(hidden, head.weight, head.bias), Pieces(), 0
    for part in head.layout.parts:
        match type(part).__name__:
            case "Categorical":
                logits, outputs = outputs[:, : part.num], outputs[:, part.num :]  # type: ignore[union-attr]
                pieces.append((published.Categorical(logits=logits), 1))
            case "Bits":
                logits, outputs = outputs[:, : part.num], outputs[:, part.num :]  # type: ignore[union-attr]
                pieces.append((published.Independent(published.Bernoulli(logits=logits), 1), part.size))
            case _:
                mean, outputs = outputs[:, : part.size], outputs[:, part.size :]
                if hasattr(head, "log_std"):
                    log_std = head.log_std[done : done + part.size]
                else:
                    log_std, outputs = outputs[:, : part.size], outputs[:, part.size :]
                done += part.size
                of: published.Distribution = published.Normal(mean, log_std.exp())
                if head.layout.bounds == "tanh":
                    low, high = (torch.from_numpy(getattr(part, name)).double() for name in ("low", "high"))
                    moved = published.AffineTransform((low + high) / 2, (high - low) / 2)
                    of = published.TransformedDistribution(of, [published.TanhTransform(), moved])
                pieces.append((published.Independent(of, 1), part.size))
    assert outputs.shape[1] == 0
    return pieces


def literal_log_prob(pieces: Pieces, rows: Tensor) -> Tensor:
    """Of the actions that the environment gets for the rows, computed from those and not from the rows."""
    total, columns = torch.zeros(len(rows), dtype=torch.float64), rows.split_with_sizes([size for _, size in pieces], 1)
    for (of, _), entries in zip(pieces, columns, strict=True):
        base = of.base_dist if isinstance(of, published.Independent) else of
        values: Tensor = entries.squeeze(1) if isinstance(of, published.Categorical) else entries.double()
        for transform in getattr(base, "transforms", ()):
            values = transform(values)
        total = total + of.log_prob(values)
    return total


def grads(values: Tensor, head: ActionHead) -> list[Tensor]:
    """Of a weighted sum of the values, with respect to all parameters of the head."""
    weights = torch.linspace(-1, 2, len(values), dtype=values.dtype)
    return list(torch.autograd.grad((values * weights).sum(), list(head.parameters()), retain_graph=True))


def agree(ours: Tensor, theirs: Tensor, head: ActionHead, tolerance: float = 1e-9) -> None:
    """The values are the same, and so are the gradients of all parameters."""
    assert ours.dtype == torch.float64
    assert ours.shape == theirs.shape == (len(ours),)
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    for one, other in zip(grads(ours, head), grads(theirs, head), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


CASES = [(name, "clip", std) for name in SPACES for std in STDS] + [
    (name, "tanh", std) for name in ("numbers", "everything") for std in STDS
]


@pytest.mark.parametrize(("name", "bounds", "std"), CASES)
def test_log_prob(name: str, bounds: Bounds, std: Std) -> None:
    """Log-probabilities and their gradients are those of torch.distributions, squashed numbers in their own units."""
    head, hidden = head_of(SPACES[name], bounds=bounds, std=std), hidden_of(40)
    of = head(hidden)
    rows, log_probs = of.sample(torch.Generator().manual_seed(2))
    theirs = literal_log_prob(literal(head, hidden), rows)
    agree(of.log_prob(rows), theirs, head, 1e-7)
    agree(log_probs, theirs, head, 1e-7)


@pytest.mark.parametrize(("name", "std"), [(name, std) for name in SPACES for std in STDS])
def test_entropy(name: str, std: Std) -> None:
    """Entropies of what is not squashed, and their gradients, are those of torch.distributions."""
    head, hidden = head_of(SPACES[name], std=std), hidden_of(40)
    if name == "numbers" and std == "shared":  # depends on the standard deviations alone
        entropies = head(hidden).entropy()
        assert torch.equal(entropies, entropies[:1].expand(40))
        torch.testing.assert_close(entropies[0], published.Normal(0, head.log_std.exp()).entropy().sum())  # type: ignore[no-untyped-call]
        return
    theirs = torch.stack([of.entropy() for of, _ in literal(head, hidden)]).sum(0)
    agree(head(hidden).entropy(), theirs, head)


@pytest.mark.parametrize(("name", "bounds", "std"), CASES)
def test_kl(name: str, bounds: Bounds, std: Std) -> None:
    """Divergences and their gradients, of both heads, are those of torch.distributions; a tanh changes none."""
    head, other, hidden = head_of(SPACES[name], std=std), head_of(SPACES[name], std=std, seed=9), hidden_of(40)
    pairs = zip(literal(head, hidden), literal(other, hidden), strict=True)
    theirs = torch.stack([published.kl_divergence(one, two) for (one, _), (two, _) in pairs]).sum(0)
    squashed, squashed_other = (head_of(SPACES[name], seed=seed, bounds=bounds, std=std) for seed in (0, 9))
    ours = squashed(hidden).kl(squashed_other(hidden))
    assert (ours > 0).all()
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    for mine, published_one in ((squashed, head), (squashed_other, other)):
        for one, two in zip(grads(ours, mine), grads(theirs, published_one), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-9)
    assert head(hidden).kl(head(hidden)).abs().max() < 1e-12


@pytest.mark.parametrize("std", STDS)
@pytest.mark.parametrize(("log_std", "tolerance"), [(-3.0, 1e-9), (0.0, 2e-7), (1.0, 2e-3)])
def test_entropy_of_squashed_numbers(std: Std, log_std: float, tolerance: float) -> None:
    """It is minus the integral of p log p over the range of the action, and its gradient is its slope."""
    space = Box(-0.5, 3.0, (2,))
    head = ActionHead(ActionLayout.of(space, "tanh"), 2, std).double()
    with torch.no_grad():
        head.weight.zero_()
        head.weight[0, 0] = head.weight[1, 1] = 1
        assert head.bias is not None
        (head.log_std if std == "shared" else head.bias[2:]).fill_(log_std)
        head.bias[:2] = 0
    hidden = torch.tensor([[0.0, 0.3], [-1.5, 2.5]], dtype=torch.float64)
    steps = torch.linspace(-9, 9, 20_001, dtype=torch.float64)
    normals = published.Normal(nn.functional.linear(hidden, head.weight[:2], head.bias[:2]), math.exp(log_std))
    # u runs over nine standard deviations; the density of a is that of u over the slope, and da is the slope times du.
    u = normals.mean.unsqueeze(-1) + math.exp(log_std) * steps
    log_slope = torch.log(3.5 / 2 / torch.cosh(u).square())
    log_density = -0.5 * steps.square() - log_std - 0.5 * math.log(2 * math.pi)
    expected = -(log_density.exp() * (log_density - log_slope)).sum(-1) * math.exp(log_std) * (steps[1] - steps[0])
    entropies = head(hidden).entropy()
    torch.testing.assert_close(entropies, expected.sum(-1), rtol=0, atol=2 * tolerance)
    wide = head(hidden + torch.tensor([1e-5, 0], dtype=torch.float64)).entropy()
    slope = (wide - entropies) / 1e-5
    moved = hidden.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(head(moved).entropy().sum(), moved)
    torch.testing.assert_close(gradient[:, 0], slope.detach(), rtol=1e-3, atol=1e-4)


def test_kept_nodes_take_gradients() -> None:
    """An entropy that was first asked for in inference mode, in its dtype, has gradients afterwards."""
    head = ActionHead(ActionLayout.of(ARM, "tanh"), NUM_UNITS).to(torch.float32)
    hidden = hidden_of(3).float()
    _nodes.cache_clear()
    with torch.inference_mode():
        first = head(hidden).entropy()
    again = head(hidden).entropy()
    assert torch.equal(first, again)
    (gradient,) = torch.autograd.grad(again.sum(), [head.log_std])
    assert gradient.abs().min() > 0


def test_single_choice_is_what_a_linear_layer_gave() -> None:
    """With one choice the head is a linear layer, and draws, log-probabilities and entropies are, to the bit, these."""
    head = ActionHead(ActionLayout.of(Discrete(6, start=2)), NUM_UNITS)
    assert [name for name, _ in head.named_parameters()] == ["weight", "bias"]
    assert list(head.state_dict()) == ["weight", "bias"]
    plain = nn.Linear(NUM_UNITS, 6)
    plain.load_state_dict(head.state_dict())
    hidden = hidden_of(5000).float()
    log_probs = torch.log_softmax(plain(hidden), -1)
    generator = torch.Generator().manual_seed(3)
    waits = torch.empty_like(log_probs).exponential_(generator=generator)
    actions = (log_probs - waits.log()).argmax(-1)
    chosen = log_probs.gather(1, actions.unsqueeze(1)).squeeze(1)
    entropies = -(log_probs.exp() * log_probs).sum(-1)
    ours = torch.Generator().manual_seed(3)
    of = head(hidden)
    rows, sampled = of.sample(ours)
    assert rows.shape == (5000, 1)
    assert torch.equal(rows, actions.unsqueeze(1))
    assert torch.equal(sampled, chosen)
    assert torch.equal(of.log_prob(rows), chosen)
    assert torch.equal(of.entropy(), entropies)
    assert torch.equal(ours.get_state(), generator.get_state())
    (gradient,) = torch.autograd.grad(of.log_prob(rows).sum() + of.entropy().sum(), [head.weight])
    assert torch.equal(gradient, torch.autograd.grad(chosen.sum() + entropies.sum(), [plain.weight])[0])


@pytest.mark.parametrize("name", ["choice", "choices", "bits"])
def test_frequencies(name: str) -> None:
    """Actions are drawn as often as their probabilities say, all combinations, to within four standard errors."""
    head, num = head_of(SPACES[name]), 40_000
    of: ActionDistribution = head(hidden_of(1).expand(num, NUM_UNITS))
    rows, _ = of.sample(torch.Generator().manual_seed(4))
    assert rows.dtype == torch.int64
    total = 0.0
    nums = {"choice": (4,), "choices": (3, 2), "bits": (2, 2, 2)}[name]
    for row in itertools.product(*map(range, nums)):
        probability = float(of.log_prob(torch.tensor(row).expand(num, -1))[0].detach().exp())
        frequency = float((rows == torch.tensor(row)).all(1).double().mean())
        assert abs(frequency - probability) < 4 * math.sqrt(probability * (1 - probability) / num)
        total += probability
    assert total == pytest.approx(1)


@pytest.mark.parametrize("bounds", BOUNDS)
def test_moments(bounds: Bounds) -> None:
    """Numbers have their means and deviations, no correlation, and the mean log-probability is minus the entropy."""
    head, num = head_of(ARM, bounds=bounds), 40_000
    hidden = hidden_of(1).expand(num, NUM_UNITS)
    rows, log_probs = head(hidden).sample(torch.Generator().manual_seed(5))
    assert rows.dtype == torch.float32
    assert not rows.requires_grad
    noise = (rows.double() - nn.functional.linear(hidden, head.weight, head.bias)) / head.log_std.exp()
    bound = 4 / math.sqrt(num)
    assert noise.mean(0).abs().max() < bound
    assert (noise.T @ noise / num - torch.eye(3)).abs().max() < bound * math.sqrt(2)
    assert abs(log_probs.mean() + head(hidden[:1]).entropy()[0]) < 4 * log_probs.std() / math.sqrt(num)


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("std", STDS)
def test_everything(bounds: Bounds, std: Std) -> None:
    """All kinds in one action: rows of float32 that are actions of the space, their parts independent, by one seed."""
    head, num = head_of(EVERYTHING, bounds=bounds, std=std), 20_000
    of = head(hidden_of(1).expand(num, NUM_UNITS))
    rows, log_probs = of.sample(torch.Generator().manual_seed(6))
    assert rows.shape == (num, head.layout.size)
    assert rows.dtype == of.mode().dtype == torch.float32
    assert all(head.layout.to_env(row) in EVERYTHING for row in rows[:50].numpy())
    correlations = torch.corrcoef(rows.double().T) - torch.eye(head.layout.size)
    assert correlations.abs().max() < 4.5 / math.sqrt(num)
    assert abs(log_probs.mean() + of.entropy()[0]) < 4 * log_probs.std() / math.sqrt(num)
    assert torch.equal(rows, of.sample(torch.Generator().manual_seed(6))[0])
    assert not torch.equal(rows, of.sample(torch.Generator().manual_seed(7))[0])


@pytest.mark.parametrize("name", SPACES)
def test_mode(name: str) -> None:
    """No drawn action is likelier than the mode."""
    head, hidden = head_of(SPACES[name]), hidden_of(200)
    of = head(hidden)
    rows, log_probs = of.sample(torch.Generator().manual_seed(8))
    assert of.mode().shape == rows.shape
    assert of.mode().dtype == rows.dtype
    assert (of.log_prob(of.mode()) >= log_probs - 1e-6).all()


@pytest.mark.parametrize("name", SPACES)
def test_far_outputs_stay_finite(name: str) -> None:
    """Outputs of +-1000 and actions squashed to their very bounds have finite log-probabilities and gradients."""
    head = ActionHead(ActionLayout.of(SPACES[name], "tanh"), NUM_UNITS)
    with torch.no_grad():
        head.weight.mul_(0)
        assert head.bias is not None
        head.bias.copy_(1000 * (-1.0) ** torch.arange(len(head.bias)))
    of = head(torch.ones(6, NUM_UNITS))
    rows, log_probs = of.sample(torch.Generator().manual_seed(0))
    values: tuple[Callable[[], Tensor], ...] = (lambda: of.log_prob(rows), of.entropy, lambda: of.kl(of))
    assert torch.isfinite(log_probs).all()
    for value in values:
        assert torch.isfinite(value()).all()
        gradients = torch.autograd.grad(value().sum(), list(head.parameters()), retain_graph=True, allow_unused=True)
        assert all(gradient is None or bool(torch.isfinite(gradient).all()) for gradient in gradients)


def test_standard_deviations() -> None:
    """Shared ones are one parameter, 1 at first, for all Boxes; learned ones are outputs; nothing else has any."""
    shared = ActionHead(ActionLayout.of(EVERYTHING), NUM_UNITS)
    assert shared.log_std.tolist() == [0.0] * 4
    assert shared.out_features == 3 + 3 + 2 + 2 + 4 + 1
    learned = ActionHead(ActionLayout.of(EVERYTHING), NUM_UNITS, "learned")
    assert [name for name, _ in learned.named_parameters()] == ["weight", "bias"]
    assert learned.out_features == shared.out_features + 4
    assert len(list(ActionHead(ActionLayout.of(MultiBinary(2)), NUM_UNITS).parameters())) == 2
    with pytest.raises(ValueError, match="'fixed': unknown; must be one of: shared, learned"):
        ActionHead(ActionLayout.of(ARM), NUM_UNITS, "fixed")  # type: ignore[arg-type]
