"""A small program of a user: `nox -s types` checks it as strictly as all, and says where a wrong type goes unnoticed.

Each `type: ignore` is needed: mypy, which is told to warn of those that are not, refuses what stands there.
"""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import pandas as pd
import pytest

import rlbench
from tests.harness.sweeps import write_sweep


def test_a_program_of_a_user(tmp_path: Path) -> None:
    """What is read has types: frames, texts, paths."""
    results = rlbench.load(write_sweep(tmp_path), reference="sync")
    assert_type(results, rlbench.Results)
    assert_type(results.cells, pd.DataFrame)
    assert_type(results.answers, list[str])
    assert_type(results.folders, tuple[Path, ...])
    assert_type(rlbench.report(results, tmp_path / "report.html"), Path)
    assert_type(rlbench.__version__, str)
    fastest: float = results.cells["steps_per_s"].max()
    assert fastest == 1337


def test_wrong_values_are_wrong_types_too() -> None:
    """What a call refuses, mypy refuses before."""
    with pytest.raises(TypeError, match="oversubscribe='yes'"):
        rlbench.run("ver", oversubscribe="yes")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="gpus=<object"):
        rlbench.predict("ver", gpus=object())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected keyword argument 'steps'"):
        rlbench.run("ver", steps=5)  # type: ignore[call-arg]


def test_the_package_says_that_it_is_typed() -> None:
    """Type checkers read the types of an installed package only with this file."""
    assert Path(rlbench.__file__).with_name("py.typed").is_file()
