"""What a run learned from: what became of the samples of each environment, scenario part and length of episodes.

The wrapper counts what each environment collected, and how long its episodes were; ranks that learn count what they
learned from and discarded (`harness/metering/fates.py`). What is neither is in flight. Letters: E environments of the
run, of all ranks, B blocks, F fates, L bins of lengths. Where environments have several agents, each agent is one here:
its samples are its steps, its episodes its stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rlbench.harness.contract.agents import num_rows
from rlbench.harness.contract.envs import InParts, env_seeds
from rlbench.harness.metering.fates import DISCARDED, LEARNED, NUM_BINS, NUM_FATES, bin_of
from rlbench.harness.processes import raised
from rlbench.results.reading.untrusted import visible
from rlbench.results.records.schema import EnvFates, Evenness, LearnedFrom
from rlbench.results.statistics.evenness import p_value

if TYPE_CHECKING:
    import numpy.typing as npt

    from rlbench.harness.contract.scenario import Scenario
    from rlbench.harness.metering.fates import Fates
    from rlbench.harness.plan.cells import Cell
    from rlbench.harness.run.figures import RunOutput

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

ENVIRONMENTS_FILE = "environments.parquet"
MOST_PARTS = 32
"""A record names the parts of a scenario that has at most so many; the file has those of any."""
LONGEST_PART = 60
"""Characters of the name of a part."""
NOT_ENDED = "not ended"
"""The name of the row of episodes that had not ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """What became of the samples of each environment; all arrays are [E]."""

    collected: Ints
    learned: Ints
    discarded: Ints
    cut: Ints | None
    is_lost: npt.NDArray[np.bool_]
    """Whether the environment's rank was lost: what was in flight is discarded."""
    problem: str | None
    """The first environment whose samples the system did not account for."""
    parts: Sequence[str]
    """The part of the scenario that each has; empty if that is not known."""

    @property
    def in_flight(self) -> Ints:
        """What was neither learned from nor discarded; a process that was killed may have counted too much."""
        left: Ints = np.maximum(self.collected - self.learned - self.discarded, 0)
        return left


def parts_of(scenario: Scenario, cell: Cell) -> tuple[list[str], list[str]]:
    """The part of the scenario that each environment of a run has, empty if it names none; and warnings."""
    if not isinstance(scenario, InParts):
        return [], []
    num_envs = num_rows(scenario)
    try:
        parts = [
            visible(str(scenario.part(rank * num_envs + index, seed)))[:LONGEST_PART]
            for rank in range(cell.gpus)
            for index, seed in enumerate(env_seeds(cell.seed, rank, num_envs))
        ]
    except Exception as error:  # noqa: BLE001  whatever somebody else's scenario raises
        return [], [f"what the parts of the scenario were learned from is not known: {raised.in_a_line(error)}"]
    return parts, []


def add_up(left: RunOutput) -> Account | None:
    """Adds up what ranks that learned left of each environment; None where some environment is not reported."""
    num_envs = max((meter.num_envs for meter in left.meters.values()), default=0)
    size = left.cell.gpus * num_envs
    collected, learned, discarded, cut = (np.zeros(size, np.int64) for _ in range(4))
    in_flight, is_told, is_lost = np.zeros(size, np.int64), np.zeros(size, np.bool_), np.zeros(size, np.bool_)
    for rank, meter in left.meters.items():
        own = slice(rank * num_envs, rank * num_envs + meter.num_envs)
        collected[own] = [meter.count(1 + env, "env_steps") for env in range(meter.num_envs)]
        is_lost[own] = rank in left.lost
    for fates in left.fates:
        own = slice(fates.first_env, fates.first_env + len(fates.in_flight))
        learned[own], discarded[own] = fates.totals
        in_flight[own], is_told[own] = fates.in_flight, True
        cut[own] = 0 if fates.cut is None else fates.cut
    if not size or not (is_told | is_lost | (collected == 0)).all() or not is_told.any():
        return None
    wrong = np.flatnonzero((collected != learned + discarded + in_flight) & ~is_lost)
    problem = None
    if len(wrong):
        one = int(wrong[0])
        told = f"{learned[one]} learned + {discarded[one]} discarded + {in_flight[one]} in flight"
        who, unit = f"environment {one}", "env steps"
        if left.agents_per_env > 1:
            env, agent = divmod(one, left.agents_per_env)
            who, unit = f"environment {env}, agent {agent}", "agent steps"
        problem = f"conservation broken: {who} collected {collected[one]} {unit}, but {told}"
    discarded = np.where(is_lost, np.maximum(collected - learned, 0), discarded)
    knows_cut = all(fates.cut is not None for fates in left.fates)
    return Account(
        collected=collected,
        learned=learned,
        discarded=discarded,
        cut=cut if knows_cut else None,
        is_lost=is_lost,
        problem=problem,
        parts=left.parts if len(left.parts) == size else (),
    )


def rows_of(account: Account, left: RunOutput) -> list[dict[str, Any]]:
    """`environments.parquet`: a row for each environment, or each agent of one."""
    num_envs = len(account.collected) // left.cell.gpus
    rows, agents = np.arange(len(account.collected)), left.agents_per_env
    columns: dict[str, Any] = {
        "rank": rows // num_envs,
        "environment": rows // agents,
        **({"agent": rows % agents} if agents > 1 else {}),
        **({"part": account.parts} if account.parts else {}),
        "started": account.collected,
        "learned": account.learned,
        "discarded": account.discarded,
        "in_flight": account.in_flight,
        **({"cut": account.cut} if account.cut is not None else {}),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def learned_from(account: Account, left: RunOutput) -> LearnedFrom | None:
    """What the record says of it; None of a run that learned nothing."""
    alive = ~account.is_lost
    learned, settled = account.learned[alive], (account.learned + account.discarded)[alive]
    if not learned.sum():
        return None
    surviving = [fates for fates in left.fates if alive[fates.first_env]]
    of_blocks = _in_blocks(surviving, len(alive))[:, :, alive]
    shares, even = learned / learned.sum(), 1 / len(learned)
    deviations = _shares(of_blocks[:, LEARNED]) - even
    kept = None
    if account.discarded[alive].any():
        of_each = learned[settled > 0] / settled[settled > 0]
        surplus = _shares(of_blocks[:, LEARNED]) - _shares(of_blocks.sum(1))
        kept = Evenness(
            least=float(of_each.min()),
            most=float(of_each.max()),
            even=float(learned.sum() / settled.sum()),
            distance=_distance(shares, settled / settled.sum()),
            p=p_value(surplus),
        )
    return LearnedFrom(
        environments=len(account.collected),
        cut=None if account.cut is None else int(account.cut.sum()),
        shares=Evenness(
            least=float(shares.min()),
            most=float(shares.max()),
            even=even,
            distance=_distance(shares, np.full(len(shares), even)),
            p=p_value(deviations),
        ),
        kept=kept,
        fast_favoured=_rank_correlation(-_seconds_of_step(left)[alive], shares),
        parts=list(_parts(account)),
        lengths=list(_lengths(account, left)),
    )


def _distance(shares: Floats, wanted: Floats) -> float:
    """The total variation distance: the part of the samples that would have to be of other environments."""
    return float(np.abs(shares - wanted).sum() / 2)


def _in_blocks(fates: Sequence[Fates], num_envs: int) -> Ints:
    """Counts in as many blocks for all learners, [B, F, E]: each block is the same part of each one's iterations."""
    num_blocks = min((each.num_whole for each in fates), default=0)
    counts = np.zeros((num_blocks, NUM_FATES, num_envs), np.int64)
    for each in fates if num_blocks else ():
        begins = np.arange(num_blocks) * each.num_whole // num_blocks
        own = slice(each.first_env, each.first_env + len(each.in_flight))
        counts[:, :, own] = np.add.reduceat(each.blocks[: each.num_whole], begins, axis=0)
    return counts


def _shares(counts: Ints) -> Floats:
    """Shares of counts [B, E]; all 0 in a block without any."""
    totals = counts.sum(1, keepdims=True)
    shares: Floats = np.divide(counts, totals, out=np.zeros(counts.shape), where=totals > 0)
    return shares


def _seconds_of_step(left: RunOutput) -> Floats:
    """Mean time of an env step of each environment with its resets, [E]; 0 where it has none.

    Of an agent, its share of the time of its environment's steps.
    """
    num_envs, agents = max(meter.num_envs for meter in left.meters.values()), left.agents_per_env
    seconds = np.zeros(left.cell.gpus * num_envs)
    for rank, meter in left.meters.items():
        for env in range(meter.num_envs):
            spent_s = meter.seconds(1 + env, "step_s") + meter.seconds(1 + env, "reset_s")
            counted = (env, "env_steps") if agents == 1 else (env - env % agents, "joint_steps")
            seconds[rank * num_envs + env] = spent_s / max(1, meter.count(1 + counted[0], counted[1]))
    return seconds


def _rank_correlation(a: Floats, b: Floats) -> float | None:
    """Spearman's; None where one of the two does not vary."""
    ranks = np.array([np.unique(values, return_inverse=True)[1] for values in (a, b)])
    if (ranks.max(1) == 0).any():
        return None
    return float(np.corrcoef(ranks)[0, 1])


def _parts(account: Account) -> Iterator[EnvFates]:
    names, which = np.unique(np.array(account.parts, dtype=np.str_), return_inverse=True)
    if len(names) > MOST_PARTS:
        return
    for number, name in enumerate(names.tolist()):
        there = which == number
        yield EnvFates(
            name=name,
            environments=int(there.sum()),
            started=int(account.collected[there].sum()),
            learned=int(account.learned[there].sum()),
            discarded=int(account.discarded[there].sum()),
            in_flight=int(account.in_flight[there].sum()),
            cut=None if account.cut is None else int(account.cut[there].sum()),
        )


def _lengths(account: Account, left: RunOutput) -> Iterator[EnvFates]:
    """A row for each bin of lengths, and one for episodes that had not ended; none where a model made the run up."""
    if any(fates.by_length is None for fates in left.fates):
        return
    of = np.array([episode["environment"] for episode in left.episodes], np.int64)
    lengths = np.array([episode["length"] for episode in left.episodes], np.int64)
    order = np.argsort(of, kind="stable")
    of, lengths = of[order], lengths[order]
    begins = np.searchsorted(of, np.arange(len(account.collected) + 1))
    bins = bin_of(lengths)
    started, started_lost = (
        _by_bin(account.collected, of, lengths, wanted)
        for wanted in (np.full_like(account.is_lost, fill_value=True), account.is_lost)
    )
    met, learned_lost = np.zeros((NUM_FATES, NUM_BINS + 1), np.int64), np.zeros(NUM_BINS + 1, np.int64)
    for fates in left.fates:
        assert fates.by_length is not None
        assert fates.open is not None
        assert fates.episodes is not None
        own = np.pad(fates.by_length, ((0, 0), (0, 1)))
        envs = fates.first_env + np.arange(len(fates.in_flight))
        at = begins[envs] + fates.episodes
        has_ended = at < begins[envs + 1]
        into = np.where(has_ended, np.append(bins, 0)[np.where(has_ended, at, -1)], NUM_BINS)
        np.add.at(own.T, into, fates.open.T)
        if account.is_lost[fates.first_env]:
            learned_lost += own[LEARNED]
            own[DISCARDED] = 0
        met += own
    met[DISCARDED] += started_lost - learned_lost
    for number in np.flatnonzero(started).tolist():
        yield EnvFates(
            name=NOT_ENDED if number == NUM_BINS else _named(number),
            started=int(started[number]),
            learned=int(met[LEARNED, number]),
            discarded=int(met[DISCARDED, number]),
            in_flight=max(0, int(started[number] - met[:, number].sum())),
        )


def _by_bin(collected: Ints, of: Ints, lengths: Ints, wanted: npt.NDArray[np.bool_]) -> Ints:
    """Env steps collected by the bins of the lengths of their episodes, [L + 1]; the last is `NOT_ENDED`.

    Args:
        collected: by each environment.
        of: the environment of each episode that has ended.
        lengths: of these episodes.
        wanted: which environments count.
    """
    counts, ended = np.zeros(NUM_BINS + 1, np.int64), lengths[wanted[of]]
    np.add.at(counts, bin_of(ended), ended)
    counts[-1] = collected[wanted].sum() - ended.sum()
    return counts


def _named(number: int) -> str:
    """The name of a bin of lengths."""
    return "1" if number == 0 else f"{2**number:,} to {2 ** (number + 1) - 1:,}"
