from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from rlbench.systems.learn.sequences import Sequence, cut_sequences, fixed_runs, pack, split_by_env, split_by_steps


def some_sequences(lengths: list[int]) -> list[Sequence]:
    """Sequences of these lengths over samples in random order; environment i has the state [i, i]."""
    order = np.random.default_rng(3).permutation(sum(lengths)).astype(np.int64)
    pieces = np.split(order, np.cumsum(lengths)[:-1])
    return [Sequence(env=i, index=piece, state=torch.full((2,), float(i))) for i, piece in enumerate(pieces)]


def test_fixed_runs() -> None:
    """Sample t * N + n of a fixed rollout is step t of environment n."""
    assert [run.tolist() for run in fixed_runs(3, 2)] == [[0, 2, 4], [1, 3, 5]]


def test_cut_at_episode_starts() -> None:
    """A run that goes on begins with its stored state; each later episode begins a sequence, with a zero state."""
    starts = np.zeros(8, np.bool_)
    starts[[1, 4, 6]] = True  # environment 0 has samples 0 2 4 6, environment 1 has 1 3 5 7
    states = torch.arange(5.0, 13.0).unsqueeze(1)
    sequences = cut_sequences(fixed_runs(4, 2), range(2), starts, states)
    assert [(s.env, s.index.tolist(), s.state.tolist()) for s in sequences] == [
        (0, [0, 2], [5.0]),
        (0, [4], [0.0]),
        (0, [6], [0.0]),
        (1, [1, 3, 5, 7], [0.0]),
    ]


@pytest.mark.parametrize("seed", range(5))
def test_cut_keeps_every_sample(seed: int) -> None:
    """Every sample is in one sequence, in order of time, and no sequence crosses into another episode."""
    numbers = np.random.default_rng(seed)
    lengths = numbers.integers(0, 30, size=6)
    runs = np.split(numbers.permutation(int(lengths.sum())).astype(np.int64), np.cumsum(lengths)[:-1])
    starts = numbers.random(int(lengths.sum())) < 0.3
    sequences = cut_sequences(runs, range(6), starts, torch.zeros(int(lengths.sum()), 1))
    for env, run in enumerate(runs):
        own = [sequence.index for sequence in sequences if sequence.env == env]
        assert np.array_equal(np.concatenate([*own, np.zeros(0, np.int64)]), run)
    assert not any(starts[sequence.index[1:]].any() for sequence in sequences)


def test_split_by_env() -> None:
    """Each environment's sequences stay together; mini-batches differ by at most one; the seed decides."""
    runs = fixed_runs(6, 7)
    sequences = cut_sequences(runs, range(7), np.arange(42) % 5 == 0, torch.zeros(42, 1))
    splits = []
    for seed in (0, 0, 1, 2):
        groups = split_by_env(sequences, 3, torch.Generator().manual_seed(seed))
        envs = [sorted({sequence.env for sequence in group}) for group in groups]
        assert sorted(env for group in envs for env in group) == list(range(7))
        assert sorted(len(group) for group in envs) == [2, 2, 3]
        assert sum(len(group) for group in groups) == len(sequences)
        splits.append(envs)
    assert splits[0] == splits[1]
    assert splits[0] != splits[2] or splits[0] != splits[3]


def test_more_minibatches_than_envs() -> None:
    """Fewer environments than mini-batches are refused by the name of the setting."""
    sequences = cut_sequences(fixed_runs(4, 2), range(2), np.ones(8, np.bool_), torch.zeros(8, 1))
    with pytest.raises(ValueError, match=r"learn\.num_minibatches=3: must be at most .* 2"):
        split_by_env(sequences, 3, torch.Generator())


@pytest.mark.parametrize("seed", range(6))
def test_split_by_steps(seed: int) -> None:
    """Sequences in random order, end to end, cut every S / B steps; a cut one goes on with its stored state."""
    lengths = np.random.default_rng(seed).integers(1, 40, size=9).tolist()
    sequences = some_sequences(lengths)
    num_samples, num_groups = sum(lengths), int(np.random.default_rng(seed).integers(1, 12))
    states = 100 + torch.arange(float(num_samples)).unsqueeze(1).expand(-1, 2)
    groups = split_by_steps(sequences, num_groups, torch.Generator().manual_seed(seed), states)
    sizes = [sum(len(piece.index) for piece in group) for group in groups]
    assert len(sizes) == num_groups
    assert sum(sizes) == num_samples
    assert max(sizes) - min(sizes) <= 1
    laid = [piece for group in groups for piece in group]
    order = list(dict.fromkeys(piece.env for piece in laid))
    assert order != list(range(9)), "the order is random"
    expected = np.concatenate([sequences[env].index for env in order])
    assert np.array_equal(np.concatenate([piece.index for piece in laid]), expected)
    begun = set()
    for piece in laid:
        own = sequences[piece.env].state if piece.env not in begun else states[piece.index[0]]
        assert torch.equal(piece.state, own)
        begun.add(piece.env)
    again = split_by_steps(sequences, num_groups, torch.Generator().manual_seed(seed), states)
    assert [[p.index.tolist() for p in group] for group in again] == [[p.index.tolist() for p in g] for g in groups]


def test_more_minibatches_than_samples() -> None:
    """Fewer samples than mini-batches are refused by the name of the setting; as many are not."""
    sequences, states = some_sequences([2, 1]), torch.zeros(3, 2)
    assert [len(group) for group in split_by_steps(sequences, 3, torch.Generator(), states)] == [1, 1, 1]
    with pytest.raises(ValueError, match=r"learn\.num_minibatches=4: must be at most .* 3"):
        split_by_steps(sequences, 4, torch.Generator(), states)


def test_pack_as_torch_does() -> None:
    """Sample order and batch sizes are those of torch's own `pack_sequence`; states follow the longest-first order."""
    sequences = some_sequences([3, 5, 1, 5, 2])
    packed = pack(sequences)
    longest_first = [sequences[i] for i in (1, 3, 0, 4, 2)]
    expected = pack_sequence([torch.from_numpy(sequence.index) for sequence in longest_first])
    assert torch.equal(packed.index, expected.data)
    assert torch.equal(packed.batch_sizes, expected.batch_sizes)
    assert packed.states[:, 0].tolist() == [1, 3, 0, 4, 2]
