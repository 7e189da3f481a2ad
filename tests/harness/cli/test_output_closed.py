"""Whoever reads a sweep's output goes away: `rlbench run 2>&1 | head -1`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rlbench.harness.cli.main import OUTPUT_CLOSED
from tests.harness.command import RLBENCH
from tests.harness.runs import FAULTY_SWEEP, RunningSweep, wait_until
from tests.results.made_records import make_record, write_run_folder

QUIET = (
    "from rlbench.harness.live import display; display.PLAIN_PERIOD_S = 3600; from rlbench_start import main; main()"
)
"""The command, whose lines are those of cells that begin and end, however long these take."""
HEAD = ("bash", "-c", f"shift; set -o pipefail; {sys.executable} -P -c '{QUIET}' \"$@\" 2>&1 | head -1", "bash")


def test_a_sweep_whose_output_nobody_reads(tmp_path: Path) -> None:
    """It ends with its next line as an interrupted one: nothing of it is left, and `--resume` completes it."""
    with RunningSweep(
        tmp_path, *FAULTY_SWEEP, "--scenario", "faulty/patient:tag=a,faulty/patient:tag=b", wrapper=HEAD
    ) as sweep:
        sweep.wait_collecting(1)
        wait_until(lambda: sweep.stdout and not sweep.of_program("head"), "the reader has had its line")
        sweep.release("a")
        assert sweep.end() == OUTPUT_CLOSED
        assert (sweep.stdout.count("\n"), sweep.stderr) == (1, "")
        wait_until(lambda: not sweep.processes(), "all have ended")
        assert sweep.files_left() == []
        assert [[run["status"] for run in sweep.runs(number)] for number in (1, 2)] == [["finished"], []]
    with RunningSweep(tmp_path, "--resume") as sweep:
        sweep.release("b")
        assert sweep.end() == 0
        assert [[run["status"] for run in sweep.runs(number)] for number in (1, 2)] == [["finished"], ["finished"]]


def test_a_report_that_nobody_reads_to_its_end(tmp_path: Path) -> None:
    """`--out /dev/stdout` is the output: whoever has had enough of it is no fault of the file."""
    write_run_folder(tmp_path, make_record())
    command = ["bash", "-c", 'set -o pipefail; "$@" | head -c 100', "bash", str(RLBENCH), "report", str(tmp_path)]
    done = subprocess.run([*command, "--out", "/dev/stdout"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (OUTPUT_CLOSED, b"")
