"""Changes to `results/`, `reports/` and what is installed beside."""

from __future__ import annotations

from tests.mutations.change import Change

CHANGES = (
    Change(
        name="narrow-interval",
        file="results/statistics/intervals.py",
        old="special.stdtrit(freedom, (1 + level) / 2)",
        new="special.stdtrit(freedom, level)",
        breaks="intervals of 95 % are of 90 %",
    ),
    Change(
        name="quartile",
        file="results/statistics/learning_curves.py",
        old="np.concatenate(scores, axis=-1), 0.25, axis=-1",
        new="np.concatenate(scores, axis=-1), 0.2, axis=-1",
        breaks="the interquartile mean is of the middle three fifths",
    ),
    Change(
        name="exit-code",
        file="results/verdicts/gate.py",
        old='{"passed": 0, "regression": 1, "inconclusive": 3,',
        new='{"passed": 0, "regression": 3, "inconclusive": 1,',
        breaks="the exit codes of a regression and of noise are swapped",
    ),
    Change(
        name="unescaped",
        file="reports/page/html.py",
        old="autoescape=True",
        new="autoescape=False",
        breaks="what a run says of itself is HTML in the report",
    ),
    Change(
        name="percent",
        file="reports/figures/format.py",
        old='f"{100 * fraction:.0f}%"',
        new='f"{fraction:.0f}%"',
        breaks="a table writes fractions as percentages",
    ),
    Change(
        name="episode-frames",
        file="rlbench_client/counted.py",
        old="length, num_frames - frames, success, spl))",
        new="length, num_frames, success, spl))",
        breaks="an episode is said to have the frames of all before it",
    ),
    Change(
        name="per-thousand",
        file="rlbench_pytest/__init__.py",
        old="self._clock.advance(1000 / self._rate(",
        new="self._clock.advance(1 / self._rate(",
        breaks="pytest-benchmark is given seconds of one env step, as those of 1,000",
        tests=("tests/harness/commands/test_pytest_plugin.py",),
    ),
    Change(
        name="usage",
        file="rlbench_start/__init__.py",
        old="USAGE = 2",
        new="USAGE = 1",
        breaks="a package that hides ours is no usage error",
        tests=("tests/rlbench/test_start.py",),
    ),
)
