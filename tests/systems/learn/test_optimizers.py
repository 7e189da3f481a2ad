"""The optimisers against torch's classes, to the bit, and what they do not import."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

from rlbench.harness.contract.settings import LearnSettings
from rlbench.systems.learn.optimizers import make_optimizer

ADAM = LearnSettings(learning_rate=0.01, adam_eps=1e-6)
PLAIN = LearnSettings(optimizer="sgd", learning_rate=0.1, momentum=0.0)
NESTEROV = LearnSettings(optimizer="sgd", learning_rate=0.1, momentum=0.9)
ADAMW = replace(ADAM, weight_decay=0.02)
DECAYING = replace(NESTEROV, weight_decay=0.02)


def torchs(parameters: list[nn.Parameter], settings: LearnSettings) -> torch.optim.Optimizer:
    """The class of torch.optim with these settings."""
    rate, decay, momentum = settings.learning_rate, settings.weight_decay, settings.momentum
    if settings.optimizer == "adam":
        return torch.optim.AdamW(parameters, lr=rate, eps=settings.adam_eps, weight_decay=decay, fused=True)
    return torch.optim.SGD(parameters, lr=rate, momentum=momentum, nesterov=momentum > 0, weight_decay=decay)


@pytest.mark.parametrize(
    "settings",
    [ADAM, PLAIN, NESTEROV, ADAMW, DECAYING],
    ids=["adam", "sgd", "nesterov", "adam with decay", "sgd with decay"],
)
def test_steps_are_those_of_torch(settings: LearnSettings) -> None:
    """Parameters are equal after each of six steps, also one that has no gradient in every other step."""
    generator = torch.Generator().manual_seed(0)
    ours = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((3, 4), (7,), ())]
    theirs = [nn.Parameter(parameter.detach().clone()) for parameter in ours]
    begun = [parameter.detach().clone() for parameter in ours]
    optimizer, reference = make_optimizer(ours, settings), torchs(theirs, settings)
    for number in range(6):
        optimizer.zero_grad()
        reference.zero_grad(set_to_none=True)
        assert all(parameter.grad is None for parameter in ours)
        for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if place != 1 or number % 2:
                one.grad = torch.randn(one.shape, generator=generator)
                other.grad = one.grad.clone()
        optimizer.learning_rate = reference.param_groups[0]["lr"] = settings.learning_rate / (1 + number)
        optimizer.step()
        reference.step()
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True)), number
    assert not any(torch.equal(one, before) for one, before in zip(ours, begun, strict=True))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_by_hand(momentum: float) -> None:
    """`sgd` steps by Nesterov's momentum (Sutskever et al. 2013 in torch's form), or plainly without momentum."""
    weight = nn.Parameter(torch.ones(3))
    optimizer = make_optimizer([weight], LearnSettings(optimizer="sgd", learning_rate=0.1, momentum=momentum))
    expected, velocity = weight.detach().clone(), torch.zeros_like(weight)
    for step in range(3):
        weight.grad = torch.full_like(weight, float(step + 1))
        velocity = momentum * velocity + weight.grad
        expected -= 0.1 * (weight.grad + momentum * velocity)
        optimizer.step()
    torch.testing.assert_close(weight.detach(), expected)


def test_torchs_compiler_is_not_imported() -> None:
    """A whole update leaves out the second that it takes; torch's own class does import it."""
    program = """
import sys, torch
from rlbench.harness.contract.settings import LearnSettings
from rlbench.systems.learn.optimizers import make_optimizer
parameter = torch.nn.Parameter(torch.ones(3))
optimizer = make_optimizer([parameter], LearnSettings())
optimizer.zero_grad()
torch.autograd.backward(parameter.square().sum())
torch.nn.utils.clip_grad_norm_([parameter], 0.5)
optimizer.step()
print("torch._dynamo" in sys.modules)
torch.optim.Adam([parameter])
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
