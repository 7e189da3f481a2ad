"""Sequences: what recurrent policies learn from (VER section 2.2).

A *run* is the consecutive steps of one environment within a rollout, as indices of samples. A run is cut where an
episode starts. The pieces are the sequences; the recurrent state at the start of each is known. Mini-batches are groups
of sequences, packed so that one time step of all sequences is contiguous: the encoder and the heads work on all samples
at once, the recurrent core on one time step of all sequences.

Letters: S samples of a rollout, L steps of a sequence, K sequences and M samples of a mini-batch, D state size.
"""

from __future__ import annotations

from collections.abc import Sequence as Listed
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sequence:
    """Consecutive steps of one environment inside one episode."""

    env: int
    """The environment's index within the rank."""
    index: NDArray[np.int64]
    """[L], the samples in order of time."""
    state: Tensor
    """[D], the recurrent state before the first step; zeros at an episode's start."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Packed:
    """A mini-batch in the order of `torch.nn.utils.rnn.PackedSequence`."""

    index: Tensor
    """int64 [M], samples: the first step of all sequences, the longest sequence first, then all second steps, ..."""
    batch_sizes: Tensor
    """int64 [longest L], on the CPU: how many sequences have a first, second, ... step."""
    states: Tensor
    """[K, D], states at the sequences' starts, the longest sequence first."""


def fixed_runs(num_steps: int, num_envs: int) -> list[NDArray[np.int64]]:
    """The runs of a rollout [T, N] in row-major layout: sample t * N + n is step t of environment n."""
    return list(np.arange(num_steps * num_envs, dtype=np.int64).reshape(num_steps, num_envs).T)


def cut_sequences(
    runs: Listed[NDArray[np.int64]], envs: Listed[int], episode_starts: NDArray[np.bool_], states: Tensor
) -> list[Sequence]:
    """Cuts each run where an episode starts.

    Args:
        runs: the indices of each run's samples in order of time; a run may be empty.
        envs: the environment of each run; an environment may have several runs.
        episode_starts: [S], true for the first step of an episode.
        states: [S, D], the recurrent state before each step, read only where a run begins.

    Returns:
        The sequences, run after run, in order of time. Their states are zero where they begin with an episode.
    """
    start_of_episode = torch.zeros_like(states[0])
    sequences = []
    for env, run in zip(envs, runs, strict=True):
        if not len(run):
            continue
        starts = episode_starts[run]
        cuts = np.flatnonzero(starts[1:]) + 1
        for position, piece in enumerate(np.split(run, cuts)):
            goes_on = position == 0 and not starts[0]
            state = states[piece[0]] if goes_on else start_of_episode
            sequences.append(Sequence(env=env, index=piece, state=state))
    return sequences


def split_by_env(sequences: Listed[Sequence], num_minibatches: int, generator: torch.Generator) -> list[list[Sequence]]:
    """Deals the environments to mini-batches in random order; all sequences of an environment stay together.

    Args:
        sequences: of one rollout.
        num_minibatches: the groups hold the same number of environments, or one more.
        generator: a CPU generator.

    Raises:
        ValueError: there are fewer environments than mini-batches.
    """
    envs = sorted({sequence.env for sequence in sequences})
    if len(envs) < num_minibatches:
        raise ValueError(
            f"learn.num_minibatches={num_minibatches}: must be at most the environments of a rank, {len(envs)}; "
            "lower it or raise num_envs"
        )
    order = torch.randperm(len(envs), generator=generator).tolist()
    group_of = {envs[chosen]: place * num_minibatches // len(envs) for place, chosen in enumerate(order)}
    groups: list[list[Sequence]] = [[] for _ in range(num_minibatches)]
    for sequence in sequences:
        groups[group_of[sequence.env]].append(sequence)
    return groups


def split_by_steps(
    sequences: Listed[Sequence], num_minibatches: int, generator: torch.Generator, states: Tensor
) -> list[list[Sequence]]:
    """Lays the sequences end to end in random order and cuts every S / B steps (VER section 2.2, figure 3B).

    A sequence that is cut goes on in the next mini-batch, from the recurrent state stored with its first sample there.

    Args:
        sequences: of one rollout, S samples in total.
        num_minibatches: B; the mini-batches hold the same number of samples, or one more.
        generator: a CPU generator.
        states: float [S, D], the recurrent state before each sample.

    Raises:
        ValueError: there are fewer samples than mini-batches.
    """
    num_samples = sum(len(sequence.index) for sequence in sequences)
    _check_enough(num_samples, num_minibatches)
    ends = [(group + 1) * num_samples // num_minibatches for group in range(num_minibatches)]
    groups: list[list[Sequence]] = [[]]
    position = 0
    for chosen in torch.randperm(len(sequences), generator=generator).tolist():
        rest = sequences[chosen]
        while len(rest.index):
            if position == ends[len(groups) - 1]:
                groups.append([])
            head, tail = np.split(rest.index, [ends[len(groups) - 1] - position])
            groups[-1].append(Sequence(env=rest.env, index=head, state=rest.state))
            position += len(head)
            if len(tail):
                rest = Sequence(env=rest.env, index=tail, state=states[tail[0]])
            else:
                break
    return groups


def split_samples(num_samples: int, num_minibatches: int, generator: torch.Generator) -> list[Tensor]:
    """Deals samples to mini-batches in random order, as PPO does where no policy has a memory (Schulman et al. 2017).

    Args:
        num_samples: S, of a rollout.
        num_minibatches: B; the mini-batches hold the same number of samples, or one more.
        generator: a CPU generator.

    Returns:
        The samples of each mini-batch, int64 [M].

    Raises:
        ValueError: there are fewer samples than mini-batches.
    """
    _check_enough(num_samples, num_minibatches)
    return list(torch.randperm(num_samples, generator=generator).tensor_split(num_minibatches))


def singly(index: Tensor, states: Tensor) -> Packed:
    """A mini-batch of single samples `index` [M], each a sequence of its own; `states` [S, D] are those before each."""
    return Packed(index=index, batch_sizes=torch.tensor([len(index)]), states=states[index])


def _check_enough(num_samples: int, num_minibatches: int) -> None:
    if num_samples < num_minibatches:
        raise ValueError(
            f"learn.num_minibatches={num_minibatches}: must be at most the samples of a rollout, {num_samples}; "
            "lower it or collect more steps"
        )


def pack(sequences: Listed[Sequence]) -> Packed:
    """Lays sequences of any lengths out as one mini-batch, on the device of their states."""
    longest_first = sorted(sequences, key=lambda sequence: -len(sequence.index))
    lengths = np.array([len(sequence.index) for sequence in longest_first])
    states = torch.stack([sequence.state for sequence in longest_first])
    joined = np.concatenate([sequence.index for sequence in longest_first])
    first_of = np.repeat(np.cumsum(lengths) - lengths, lengths)
    step_of = np.arange(len(joined)) - first_of
    by_step = np.argsort(step_of, kind="stable")  # stable: within a step the longest sequence stays first
    return Packed(
        index=torch.from_numpy(joined[by_step]).to(states.device),
        batch_sizes=torch.from_numpy(np.bincount(step_of)),
        states=states,
    )
