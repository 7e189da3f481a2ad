"""What becomes of each environment's env steps: a rank that learns counts it, and the harness reads it after the run.

Who writes: the main thread of a rank that learns, to a file that is mapped into memory; with one learner for all ranks,
rank 0 writes for all environments. Who reads: the harness, when the run has ended. Nothing blocks. The file's space is
allocated when it is made, so a full disk is an error then. A process that dies leaves what it had counted.

The env steps of an environment are learned or discarded in the order in which they were taken, so what is in flight
is always the newest. So nothing need be kept for a single step: what has become of an episode whose end is still in
flight is kept open, and is counted for the episode's length when the end is learned or discarded too.

Letters: E environments, F fates, B blocks, L bins of lengths, S samples.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

NUM_FATES = 2
LEARNED, DISCARDED = range(NUM_FATES)
MOST_BLOCKS = 32
"""B; from half as many to so many show how counts vary, however long the run."""
NUM_BINS = 32
"""L; bin k has episodes of 2^k to 2^(k + 1) - 1 env steps, the last one all longer ones too."""
MAGIC = 0x3130_5441_4652
HEADER = ("magic", "num_envs", "first_env", "steps_due", "iterations", "iterations_per_block")


@dataclass(frozen=True, kw_only=True, slots=True)
class Fates:
    """What became of the env steps of the environments that one rank learned from."""

    first_env: int
    """The number of the first environment among those of the run."""
    blocks: Ints
    """Env steps learned and discarded in consecutive blocks of iterations, each of equally many, [B, F, E]."""
    num_whole: int
    """Number of whole blocks; there may be one more, of the iterations since the last of them."""
    cut: Ints | None
    """Env steps that rollouts lacked when they were cut, [E]; None where rollouts have no fixed number of each."""
    in_flight: Ints
    """As the system counted them when the run ended, [E]."""
    by_length: Ints | None = None
    """Env steps of episodes that have met their fate to the end, by the bin of the length, [F, L]; None: not known."""
    open: Ints | None = None
    """Env steps of each environment's next episode that have met their fate, [F, E]."""
    episodes: Ints | None = None
    """How many episodes that is after, [E]."""

    @property
    def totals(self) -> Ints:
        """Env steps learned and discarded, [F, E]."""
        return np.asarray(self.blocks.sum(0, dtype=np.int64))


def bin_of(lengths: npt.ArrayLike) -> Ints:
    """The bins of episodes of these lengths, in env steps, from 1."""
    _, exponents = np.frexp(np.asarray(lengths, np.float64))
    return np.minimum(exponents.astype(np.int64) - 1, NUM_BINS - 1)


def joined(blocks: Ints) -> Ints:
    """Blocks [..., B, F, E] of twice as many iterations each; the second half is empty."""
    pairs = blocks[..., 0::2, :, :] + blocks[..., 1::2, :, :]
    return np.concatenate([pairs, np.zeros_like(pairs)], axis=-3)


def fates_path(folder: Path, rank: int) -> Path:
    """The file of a rank that learns."""
    return folder / f"fates-rank{rank}.bin"


def _views(words: Ints, num_envs: int) -> dict[str, Ints]:
    """The arrays that the words of a file are, by name."""
    shapes = _shapes(num_envs)
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    pieces = np.split(words, ends[:-1])
    return {name: piece.reshape(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}


def _shapes(num_envs: int) -> dict[str, tuple[int, ...]]:
    return {
        "header": (len(HEADER),),
        "blocks": (MOST_BLOCKS, NUM_FATES, num_envs),
        "by_length": (NUM_FATES, NUM_BINS),
        "open": (NUM_FATES, num_envs),
        "episodes": (num_envs,),
        "cut": (num_envs,),
        "in_flight": (num_envs,),
    }


class FateFile:
    """The writer's side of the file."""

    def __init__(self, path: Path, num_envs: int, first_env: int, steps_due: int) -> None:
        """Makes the file; arguments as for `RankMeter.open_fates`. Raises OSError if the disk has no room for it."""
        size = sum(math.prod(shape) for shape in _shapes(num_envs).values())
        with path.open("w+b") as file:
            os.posix_fallocate(file.fileno(), 0, 8 * size)
        views = _views(np.memmap(path, np.int64, "r+"), num_envs)
        self._header, self._blocks, self._by_length = views["header"], views["blocks"], views["by_length"]
        self._open, self._episodes, self._cut = views["open"], views["episodes"], views["cut"]
        self._in_flight = views["in_flight"]
        self._num_envs, self._steps_due = num_envs, steps_due
        self._iterations, self._per_block = 0, 1
        self._header[:] = MAGIC, num_envs, first_env, steps_due, self._iterations, self._per_block

    def settle(self, fate: int, envs: Ints, lengths: Ints) -> None:
        """Counts samples that have met a fate; arguments as for `RankMeter.settle`."""
        counts = np.bincount(envs, minlength=self._num_envs)
        self._blocks[self._iterations // self._per_block, fate] += counts
        if fate == LEARNED and self._steps_due:
            self._cut += self._steps_due - counts
        if not len(envs):
            return
        order = np.argsort(envs, kind="stable")
        envs, lengths = envs[order], lengths[order]
        # A piece is what the samples hold of one episode.
        last = np.flatnonzero(np.append(envs[1:] != envs[:-1], True) | (lengths > 0))
        sizes, of, ended = np.diff(last, prepend=-1), envs[last], lengths[last]
        goes_on = np.append(True, of[1:] != of[:-1])  # with what is open of the environment's episode
        self._open[fate, of[goes_on]] += sizes[goes_on]
        closed = goes_on & (ended > 0)
        np.add.at(self._by_length.T, bin_of(ended[closed]), self._open[:, of[closed]].T)
        self._open[:, of[closed]] = 0
        whole, begun = ~goes_on & (ended > 0), ~goes_on & (ended == 0)
        np.add.at(self._by_length[fate], bin_of(ended[whole]), sizes[whole])
        self._open[fate, of[begun]] = sizes[begun]
        self._episodes += np.bincount(of[ended > 0], minlength=self._num_envs)

    def leave(self, num_env_steps: Ints) -> None:
        """Sets how many env steps of each environment are in flight, [E]."""
        self._in_flight[:] = num_env_steps

    def end_iteration(self) -> None:
        """What is counted from now on belongs to the next iteration."""
        self._iterations += 1
        if self._iterations == MOST_BLOCKS * self._per_block:
            self._blocks[:] = joined(self._blocks)
            self._per_block *= 2
        self._header[-2:] = self._iterations, self._per_block


def read_fates(path: Path) -> Fates | None:
    """What a rank has left; None if it ended before it could count."""
    words = np.fromfile(path, np.int64) if path.exists() else np.zeros(0, np.int64)
    if len(words) < len(HEADER) or words[0] != MAGIC:
        return None
    _, num_envs, first_env, steps_due, iterations, per_block = words[: len(HEADER)].tolist()
    views = _views(words, num_envs)
    return Fates(
        first_env=first_env,
        blocks=views["blocks"],
        num_whole=iterations // per_block,
        cut=views["cut"] if steps_due else None,
        in_flight=views["in_flight"],
        by_length=views["by_length"],
        open=views["open"],
        episodes=views["episodes"],
    )
