"""`pytest --rlbench`, by running pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlbench.results.records.schema import RunRecord
from tests.results.made_records import make_record

TESTS = """
import pytest


def test_unit():
    assert 1 + 1 == 2


@pytest.mark.benchmark(group="emulated")
def test_sync(throughput):
    cell = {"scenario": "emulated/open-fridge:num_envs=2:rollout_steps=8", "device": "emulated", "time_scale": 0.02}
    records = throughput("sync", repetitions=REPETITIONS, iterations=5, **cell)
    assert [record.cell.seed for record in records] == list(range(REPETITIONS))
"""
REFUSED = """
def test_refused(throughput):
    throughput("no-such-system")
"""
TWO = """
def test_two(throughput):
    throughput("sync,ddppo", repetitions=1)


def test_one(throughput):
    throughput("sync", repetitions=1)
"""
FAKE = """
import json
import sys
from pathlib import Path

RATES = {"sync": (100.0, 110.0, 120.0), "ddppo": (50.0, 52.0, 54.0)}
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
for system in options["--systems"].split(","):
    record = json.loads(Path(__file__).with_name("template.json").read_text())
    seed = int(options["--seeds"])
    record |= {"id": system, "sweep": "sweep"}
    record["cell"] |= {"system": system, "seed": seed, "hash": f"{system}-{seed}"}
    record["figures"]["steps_per_s"] = RATES[system][seed]
    folder = Path(options["--out"], "sweep", system)
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(record))
"""
"""In the place of `rlbench run`: leaves the records of runs that were as fast as it says."""


RATIO = """
def test_ratio(throughput):
    ratio = throughput.ratio("sync", "ddppo", repetitions=3)
    assert [(each.cell.system, each.cell.seed) for each in throughput.records] == [
        ("sync", 0), ("ddppo", 0), ("ddppo", 1), ("sync", 1), ("sync", 2), ("ddppo", 2),
    ]
    assert ratio.low < ratio.value < ratio.high


def test_too_few(throughput):
    throughput.ratio("sync", "ddppo", repetitions=1)


def test_the_same(throughput):
    throughput.ratio("sync", "sync")
"""


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest in a folder; it finds our plugin by its entry point, and does not know that pytest-xdist started us.

    Under pytest-xdist, pytest-benchmark measures nothing.
    """
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=300)


def fake_runs(folder: Path) -> None:
    """From now on tests in a folder are told of runs that never were."""
    (folder / "fake.py").write_text(FAKE)
    (folder / "template.json").write_text(make_record(steps_per_s=1.0).model_dump_json())
    command = (sys.executable, str(folder / "fake.py"))
    (folder / "conftest.py").write_text(f"import rlbench_pytest\n\nrlbench_pytest.COMMAND = {command}\n")


def test_throughput_tests_are_deselected_without_the_option(tmp_path: Path) -> None:
    """Unit tests run as ever."""
    (tmp_path / "test_it.py").write_text(TESTS.replace("REPETITIONS", "1"))
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 deselected" in done.stdout


def test_seconds_per_thousand_steps_are_compared(tmp_path: Path) -> None:
    """What is measured is 1,000 / steps/s of each run, kept with its record; a slower run fails the comparison."""
    test_file, report = tmp_path / "test_it.py", tmp_path / "benchmark.json"
    test_file.write_text(TESTS.replace("REPETITIONS", "1"))
    done = run_pytest(tmp_path, "--rlbench", "--benchmark-autosave", f"--benchmark-json={report}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    (measured,) = json.loads(report.read_text())["benchmarks"]
    records = [RunRecord.model_validate(each) for each in measured["extra_info"]["runs"]]
    expected = [1000 / (record.figures.steps_per_s or 0) for record in records]
    assert measured["stats"]["data"] == pytest.approx(expected)
    assert (measured["group"], measured["stats"]["rounds"]) == ("emulated", 1)
    fake_runs(tmp_path)  # which are as slow as no machine is
    fake = (tmp_path / "fake.py").read_text().replace("(100.0, 110.0,", "(0.001, 0.001,").replace("120.0", "0.001")
    (tmp_path / "fake.py").write_text(fake)
    test_file.write_text(TESTS.replace("REPETITIONS", "3"))
    slower = run_pytest(tmp_path, "--rlbench", "--benchmark-compare", "--benchmark-compare-fail=median:50%")
    assert slower.returncode != 0
    assert "Performance has regressed" in slower.stdout + slower.stderr


def test_what_cannot_be_measured_fails_in_a_line(tmp_path: Path) -> None:
    """An unknown system says what rlbench says; two systems are one too many; what was measured beside is written."""
    (tmp_path / "test_it.py").write_text(REFUSED)
    done = run_pytest(tmp_path, "--rlbench")
    assert done.returncode == 1
    assert "unknown system 'no-such-system'" in done.stdout
    (tmp_path / "test_it.py").write_text(TWO)
    fake_runs(tmp_path)
    done = run_pytest(tmp_path, "--rlbench", f"--benchmark-json={tmp_path / 'benchmark.json'}")
    assert done.returncode == 1
    assert "2 runs; throughput() measures one system on one number of GPUs" in done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert len(json.loads((tmp_path / "benchmark.json").read_text())["benchmarks"]) == 1


def test_two_systems_run_in_turn(tmp_path: Path) -> None:
    """A B B A A B with seeds in pairs; what is measured is time / time, lower is better; the ratio is beside it."""
    (tmp_path / "test_it.py").write_text(RATIO)
    fake_runs(tmp_path)
    done = run_pytest(tmp_path, "--rlbench", f"--benchmark-json={tmp_path / 'benchmark.json'}")
    assert "2 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "repetitions=1: an interval needs at least 2" in done.stdout
    assert "sync against itself; name two systems" in done.stdout
    (measured,) = json.loads((tmp_path / "benchmark.json").read_text())["benchmarks"]
    rates = [run["figures"]["steps_per_s"] for run in measured["extra_info"]["runs"]]
    ours, theirs = [rates[at] for at in (0, 3, 4)], [rates[at] for at in (1, 2, 5)]
    assert measured["stats"]["data"] == pytest.approx([b / a for a, b in zip(ours, theirs, strict=True)])
    assert measured["extra_info"]["ratio"]["value"] == pytest.approx(sum(ours) / sum(theirs))


def test_other_peoples_tests_are_left_alone(tmp_path: Path) -> None:
    """A fixture and a parameter of that name, and a folder that is called as one of ours, are theirs."""
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "__init__.py").write_text("MINE = 3\n")
    (tmp_path / "test_it.py").write_text(
        """
import pytest
from harness import MINE


@pytest.fixture
def throughput():
    return MINE


def test_mine(throughput):
    assert throughput == 3
"""
    )
    (tmp_path / "test_other.py").write_text(
        """
import pytest


@pytest.mark.parametrize("throughput", [1, 2])
def test_parametrized(throughput):
    assert throughput
"""
    )
    done = run_pytest(tmp_path)
    assert (done.returncode, "3 passed" in done.stdout) == (0, True), done.stdout


def test_a_project_with_packages_of_our_folders_names(tmp_path: Path) -> None:
    """Pytest puts the project before all else on Python's path: its `results` is its own, and ours is measured with."""
    for name in ("harness", "systems", "scenarios", "results", "reports"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("THEIRS = True\n", encoding="utf-8")
    fake_runs(tmp_path)
    theirs = "import results, systems\n\nassert results.THEIRS and systems.THEIRS\n"
    (tmp_path / "test_it.py").write_text(theirs + RATIO.partition("def test_too_few")[0], encoding="utf-8")
    done = run_pytest(tmp_path, "--rlbench")
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout


def test_a_project_with_a_package_called_rlbench(tmp_path: Path) -> None:
    """A throughput test names the package that hides ours."""
    (tmp_path / "rlbench").mkdir()
    for name in ("conftest.py", "rlbench/__init__.py"):
        (tmp_path / name).touch()
    (tmp_path / "test_it.py").write_text("import rlbench\n\n\n" + REFUSED, encoding="utf-8")
    done = run_pytest(tmp_path, "--rlbench")
    assert done.returncode == 1, done.stdout
    assert f"rlbench: a package called 'rlbench' in {tmp_path} (on Python's path before ours) hides" in done.stdout
    assert "Traceback" not in done.stdout
