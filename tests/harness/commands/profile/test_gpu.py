from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rlbench.harness.commands.profile.cores import Cores, CpuShares, with_work
from rlbench.harness.commands.profile.gpu import (
    AssumedLink,
    Inferences,
    Learning,
    fit_inference,
    fit_learning,
    read_inferences,
    read_learning,
    schedule_item,
)
from rlbench.scenarios.emulated.profile import read_profile
from tests.harness.run.synthetic_run import infer_s, make_series, make_spans

OPEN_FRIDGE = read_profile("open-fridge")
FIXED_MS, ITEM_MS = OPEN_FRIDGE.gpu.infer_fixed_ms, OPEN_FRIDGE.gpu.infer_item_ms


def inferences_in(spans: pd.DataFrame) -> Inferences:
    """The inferences of a run with a core for everybody."""
    return read_inferences(with_work(spans, Cores(num=np.inf, num_learning=0, how="")))


def fitted(inferences: Inferences) -> tuple[float, float]:
    """Milliseconds of a batch and of an item."""
    fixed, item = fit_inference(inferences)
    return fixed.value, item.value


def of(*pairs: tuple[int, float]) -> Inferences:
    """Inferences of so many items that took so many milliseconds."""
    sizes, ms = zip(*pairs, strict=True)
    return Inferences(seconds=np.array(ms) / 1e3, sizes=np.array(sizes))


def test_sizes_of_batches_are_the_steps_that_follow() -> None:
    """Each inference is found to be for as many environments as it was for, but the first, which is left out."""
    sizes: list[int] = []

    def takes(_: int, size: int) -> float:
        sizes.append(size)
        return infer_s(OPEN_FRIDGE, size)

    spans = make_spans(OPEN_FRIDGE, num_steps=256, takes=takes)
    found = inferences_in(spans.sample(frac=1, random_state=0))  # in any order
    assert found.sizes.tolist() == sizes[1:]
    assert fitted(found) == pytest.approx((FIXED_MS, ITEM_MS))


def test_outliers_do_not_move_the_line() -> None:
    """One inference in ten that takes 50 ms more, and a little noise on all, change the line by less than 5 %."""
    draw = np.random.default_rng(0)

    def takes(_: int, size: int) -> float:
        return infer_s(OPEN_FRIDGE, size) * draw.normal(1, 0.01) + 0.05 * (draw.random() < 0.1)

    fixed_ms, item_ms = fitted(inferences_in(make_spans(OPEN_FRIDGE, num_steps=2048, takes=takes)))
    assert fixed_ms == pytest.approx(FIXED_MS, rel=0.05)
    assert fixed_ms + 16 * item_ms == pytest.approx(FIXED_MS + 16 * ITEM_MS, rel=0.05)


def test_inference_of_the_second_thread() -> None:
    """Where the rank samples in its second thread, its inferences count, and not the main thread's for values."""
    spans = make_spans(OPEN_FRIDGE, num_steps=256)
    sampler = spans.assign(environment=spans["environment"].replace(-1, -2))
    own = pd.DataFrame([{"rank": 0, "environment": -1, "begin_s": 0.5, "end_s": 0.9, "kind": "infer"}])
    assert fitted(inferences_in(pd.concat([sampler, own]))) == pytest.approx((FIXED_MS, ITEM_MS))


def test_batches_of_one_size() -> None:
    """Where all batches are alike, all of their time is fixed, and the comment says why."""
    fixed, item = fit_inference(of((8, 3.0), (8, 3.2), (8, 9.0)))
    assert (fixed.value, item.value) == pytest.approx((3.2, 0.0))
    assert item.how == "not separable: all 3 batches were of 8"


def test_neither_part_is_negative() -> None:
    """Larger batches that took less cost nothing per item; a line that begins below 0 begins at 0."""
    assert fitted(of((1, 4.0), (3, 2.0))) == pytest.approx((3.0, 0.0))
    assert fitted(of((1, 1.0), (2, 4.0))) == pytest.approx((0.0, (1 + 8) / 5))


def test_learning_counts_every_use_of_a_sample() -> None:
    """Time per sample is the seconds of learning over fresh and reused samples, as far as it had the cores."""
    series = make_series(num_learned=1000, num_reused=1000)[1:]
    learning = read_learning(series, _own(), 4)
    assert (learning.num_samples, learning.num_updates) == (2000, 8)
    assert fit_learning(learning, None)[1].value == pytest.approx(3.0)
    halved = read_learning(series, _own(("learn", 4.0, 3.0), ("learn", 4.0, 1.0)), 4)
    assert fit_learning(halved, None)[1].value == pytest.approx(1.5)


def test_no_part_of_learning_is_negative() -> None:
    """Smaller mini-batches that took less cost nothing each; all of the time is at most theirs."""
    few, many = (
        Learning(seconds=1.0, num_samples=1000, num_updates=2),
        Learning(seconds=0.5, num_samples=1000, num_updates=8),
    )
    assert [entry.value for entry in fit_learning(few, many)] == [0.0, 1.0]
    steep = Learning(seconds=9.0, num_samples=1000, num_updates=8)
    assert [entry.value for entry in fit_learning(few, steep)] == [500.0, 0.0]


def test_scheduling_is_of_each_env_step() -> None:
    """Seconds of scheduling of both threads over the env steps that were learned, as far as they had a core."""
    series = make_series(num_learned=1000, num_reused=1000)[1:]
    assert schedule_item(series, _own()).value == 0.0
    both = series.assign(**{"span/schedule": 0.2, "sampler/schedule": 0.3})
    assert schedule_item(both, _own()).value == pytest.approx(1.0)
    half = _own(("schedule", 2.0, 1.0), ("infer", 9.0, 1.0))
    assert schedule_item(both, half).value == pytest.approx(0.5)
    listening = both.assign(**{"span/simulate": 0.4, "sampler/simulate": 0.6})
    shares = CpuShares(ranks={"simulate": 0.25}, env=None)
    assert schedule_item(listening, half, shares).value == pytest.approx(0.5 + 0.5)


def _own(*spans: tuple[str, float, float]) -> pd.DataFrame:
    """Spans of a rank: what they are, how long, and for how long they had their cores."""
    rows = [(0, -1, 0.0, seconds, kind, work_s) for kind, seconds, work_s in spans]
    return pd.DataFrame(rows, columns=["rank", "environment", "begin_s", "end_s", "kind", "work_s"])


def test_link_of_a_user() -> None:
    """What is assumed of the network is checked: what a profile may hold."""
    assert AssumedLink(latency_ms=0).latency_ms == 0
    with pytest.raises(ValueError, match=r"--latency-ms -1: must be from 0 to 1e\+06"):
        AssumedLink(latency_ms=-1)
    for bandwidth in (0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=r"--bandwidth-mb-per-s .*: must be from 0.001 to"):
            AssumedLink(bandwidth_mb_per_s=bandwidth)
