from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlbench_client.given import PACKAGES_VARIABLE, python_version

SEE = """
from rlbench_client.given import _find_packages

_find_packages()
_find_packages()
try:
    import theirs_alone
    import developed
    print(theirs_alone.VALUE, developed.VALUE)
except ModuleNotFoundError:
    print("none")
import numpy
print(numpy.__file__)
"""

LOADS = """
import gymnasium.vector
from rlbench.harness.plan import registry

del gymnasium.vector.AutoresetMode
for name in registry.names(registry.SCENARIOS):
    registry.load_family(name)
for name in ("atari", "vizdoom", "pointnav"):
    env = registry.load_scenario(name, "homogeneous", {})
    print(name, env.observation_space and "is there")
"""
"""Loads scenarios as a trainer does whose library wants a gymnasium before 1.1."""


@pytest.mark.parametrize(("version", "expected"), [(python_version(), "1 2"), ("2.7", "none")])
def test_packages_of_rlbench_are_found_behind_ones_own(version: str, expected: str, tmp_path: Path) -> None:
    """Those of the same version of Python, also packages that are developed elsewhere; none stands before its own."""
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    for folder in (site / "numpy", elsewhere):
        folder.mkdir(parents=True)
    (site / "numpy" / "__init__.py").touch()
    (site / "theirs_alone.py").write_text("VALUE = 1\n")
    (site / "developed.pth").write_text(f"{elsewhere}\n")
    (elsewhere / "developed.py").write_text("VALUE = 2\n")
    told = {**os.environ, PACKAGES_VARIABLE: os.pathsep.join((version, str(site)))}
    done = subprocess.run([sys.executable, "-c", SEE], env=told, capture_output=True, text=True, check=True)
    found, numpy_file = done.stdout.splitlines()
    assert found == expected
    assert not numpy_file.startswith(str(tmp_path))


def test_scenarios_load_with_the_gymnasium_of_a_trainer() -> None:
    """One before 1.1, which vectors of environments need, but single environments do not."""
    done = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("is there")) == (0, 3), done.stderr
