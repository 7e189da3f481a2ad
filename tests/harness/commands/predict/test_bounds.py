"""Predictions of any profile that can be read: profiles state times within bounds, so that what follows is finite."""

from __future__ import annotations

import math
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlbench.harness.commands.predict.command import predict_sweep
from rlbench.harness.commands.profile.making import to_toml
from rlbench.harness.contract.budget import LARGEST
from rlbench.harness.predicting.options import PredictOptions
from rlbench.harness.predicting.planning import plan_predictions
from rlbench.harness.run.sweep import Sweep
from rlbench.reports.terminal.table import make_console, print_table
from rlbench.results.records import store
from rlbench.results.summary.summarise import summarise
from rlbench.scenarios.emulated.profile import Profile, read_profile
from tests.harness.command import assert_refused, call

SHIPPED = read_profile("open-fridge").document
TEXTS = {"about", "assumed"}
SMALL = {"num_envs": 4, "rollout_steps": 4}
"""How much is collected; it is bounded for the sake of the machine, and large ones take long to predict."""


def limits_of(table: str, key: str) -> tuple[float, float]:
    """The least and the most that a key of a profile may be."""
    model: Any = Profile.model_fields[table].annotation
    rules = {type(rule).__name__: rule for rule in model.model_fields[key].metadata}
    return float(rules["Ge"].ge), float(rules["Le"].le)


NUMBERS = [
    (table, key)
    for table, keys in SHIPPED.items()
    if table not in {*TEXTS, "collect", "learn"}
    for key in keys
    if key not in {"cores_per_gpu", "learn_cores"}
]


def values(table: str, key: str) -> st.SearchStrategy[float]:
    """Its ends, what a shipped profile has, and all between, small and large alike."""
    least, most = limits_of(table, key)
    low = math.log10(least or 1e-300)
    return st.one_of(
        st.sampled_from([least, most, SHIPPED[table][key]]),
        st.floats(low, math.log10(most)).map(lambda exponent: min(most, max(least, 10**exponent))),
    )


@st.composite
def profiles(draw: st.DrawFn) -> dict[str, Any]:
    """A profile that the reader takes."""
    drawn: dict[str, Any] = {table: dict(keys) for table, keys in SHIPPED.items() if table not in TEXTS}
    for table, key in NUMBERS:
        drawn[table][key] = draw(values(table, key))
    drawn["collect"] = SMALL
    cores = draw(st.sampled_from([0, 1, 3, 1024]))
    drawn["cpu"] |= {"cores_per_gpu": cores, "learn_cores": draw(st.sampled_from([0, min(1, cores), cores]))}
    return {"about": "drawn", **drawn}


def predict(profile: dict[str, Any], **asked: Any) -> None:
    """Predicts two systems on a profile: nothing warns, and the records read back and can be shown."""
    with tempfile.TemporaryDirectory() as name, np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        np.seterr(under="ignore")  # what is too small to be told from 0 is 0
        folder = Path(name)
        path = folder / "drawn.toml"
        path.write_text(to_toml(profile, {}), encoding="utf-8")
        given = {"systems": "ver,impala", "gpus": "2", "workload": "heterogeneous", "iterations": 3, **asked}
        cells, _ = plan_predictions(PredictOptions(scenario=f"emulated/{path}", **given))
        sweep = Sweep.create(folder / "runs", cells, ["rlbench"])
        with (folder / "shown").open("w", encoding="utf-8") as shown:
            predict_sweep(sweep, ["rlbench"], make_console(shown))
            runs = store.read_runs(sweep.folder)
            print_table(summarise(runs), make_console(shown))
        assert len(runs) == 2
        for record in (run.record for run in runs):  # work that takes no time may leave an iteration that takes none
            assert record.status == "finished" or "must end" in (record.reason or ""), record.reason


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(profile=profiles())
def test_any_profile_is_predicted(profile: dict[str, Any]) -> None:
    """Whatever a profile may state, each figure of a prediction is finite, and what was written can be read."""
    predict(profile)


@pytest.mark.parametrize("which", [0, 1])
def test_the_ends_of_all_bounds(which: int) -> None:
    """All keys at their least, and all at their most."""
    tables: dict[str, Any] = {table: dict(keys) for table, keys in SHIPPED.items() if table not in TEXTS}
    for table, key in NUMBERS:
        tables[table][key] = limits_of(table, key)[which]
    predict({"about": "an end", **tables, "collect": SMALL})


@pytest.mark.parametrize("asked", [{"seconds": 1e-300}, {"env_steps": 1}, {"seconds": LARGEST, "iterations": 1}])
def test_extreme_budgets(asked: dict[str, Any]) -> None:
    """A budget of nearly nothing, and one that something else ends."""
    profile = {**SHIPPED, "collect": SMALL}
    predict(profile, **{"iterations": None, **asked})


@pytest.mark.parametrize(("table", "key"), NUMBERS)
def test_what_is_beyond_its_bounds(table: str, key: str, tmp_path: Path) -> None:
    """It is refused in one line, with the file, the line, the key, the bound and the value."""
    least, most = limits_of(table, key)
    for value, bound in ((most * 1.001, most), (least - max(least, 1) * 1e-3, least)):
        path = tmp_path / "mine.toml"
        path.write_text(to_toml({**SHIPPED, table: {**SHIPPED[table], key: value}}, {}), encoding="utf-8")
        ended = call("predict", "--systems", "ver", "--scenario", f"emulated/{path}", "--out", str(tmp_path / "out"))
        assert_refused(ended, f"{path}:", f"{table}.{key}: must be ", " than or equal to ", ", not ")
        told = re.search(r"equal to (\S+), not", ended.err)
        assert told is not None
        assert float(told[1]) == bound


@pytest.mark.parametrize("option", ["--latency-ms", "--bandwidth-mb-per-s"])
@pytest.mark.parametrize("value", ["1e300", "-1", "nan", "inf"])
def test_what_is_assumed_of_a_link(option: str, value: str, tmp_path: Path) -> None:
    """`rlbench profile` refuses what a profile could not hold before it runs anything."""
    ended = call("profile", "--scenario", "pointnav", option, value, "--runs", str(tmp_path / "runs"))
    assert_refused(ended, f"{option} ", "must be from ")
    assert not (tmp_path / "runs").exists()
