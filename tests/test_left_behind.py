from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.harness.runs import has_ended, wait_until
from tests.watching import MARK, Watch

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = "from tests import left_behind\nleft_behind.PATIENCE_S = 0.5\npytest_configure = left_behind.begin\n"
TESTS = {
    "nothing": "def test_it(tmp_path): (tmp_path / 'x').touch()",
    "its own process": """
import multiprocessing
def test_it():
    child = multiprocessing.get_context("forkserver").Process(target=print)
    child.start()
    child.join()
""",
    "a process": """
import subprocess
def test_it():
    subprocess.Popen(["sleep", "600"], start_new_session=True)
""",
    "a temporary file": "def test_it(): open('/tmp/NAME', 'w').close()",
    "shared memory": "def test_it(): open('/dev/shm/NAME', 'w').close()",
    "a table": """
from rlbench.systems.engine.workers.tables import SharedColumn, SharedTable
def test_it(): SharedTable((SharedColumn("x", (3,), "<f4"),))
""",
}
SAID = {
    "a process": r"process \d+ of test_of_ours.py::test_it \(call\): sleep 600",
    "a temporary file": "/tmp/NAME, made by gw0",  # noqa: S108  it is what the test is about
    "shared memory": "/dev/shm/NAME, made by gw0",  # noqa: S108
    "a table": "1 descriptors of tables in gw0",
}


def run(folder: Path, test: str) -> tuple[int, str]:
    """Exit code and output of a run of one test, in a process of pytest-xdist."""
    (folder / "conftest.py").write_text(PLUGIN, encoding="utf-8")
    (folder / "test_of_ours.py").write_text(test, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "1", "--basetemp", str(folder / "t")]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("left", TESTS)
def test_a_run_that_leaves_something_fails(left: str, tmp_path: Path, shm_prefix: str) -> None:
    """A process, a file in /tmp or /dev/shm, and a descriptor of a table are each named; what is cleared up is not."""
    name = f"{shm_prefix}-{secrets.token_hex(4)}"
    code, out = run(tmp_path, TESTS[left].replace("NAME", name))
    for place in ("/tmp", "/dev/shm"):  # noqa: S108  it is what the test is about
        Path(place, name).unlink(missing_ok=True)
    if found := re.search(r"process (\d+) of", out):
        os.kill(int(found[1]), signal.SIGKILL)
    assert "1 passed" in out
    if left in SAID:
        assert re.search(f"left behind.*{SAID[left].replace('NAME', name)}", out, re.DOTALL), out
        assert code == 1
    else:
        assert "left behind" not in out, out
        assert code == 0


OPENS = "import sys; file = open(sys.argv[1], 'w'); print(flush=True); sys.stdin.read()"
LISTENS = """
import socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("code", [OPENS, LISTENS])
@pytest.mark.parametrize("is_marked", [True, False])
def test_what_processes_use_is_told_from_what_others_do(code: str, is_marked: bool, tmp_path: Path) -> None:
    """A file or socket that one with the mark used is left once that has died; another's is never ours."""
    (tmp_path / "before").touch()
    watch = Watch("ours", (tmp_path,))
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "new")],
        env={**os.environ, MARK: "ours" if is_marked else "another's", "TMPDIR": ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        watch.look()
        assert watch.left() == []
        process.kill()
    watch.look()
    assert watch.left() == ([tmp_path / "new"] if is_marked else [])
    (tmp_path / "new").unlink()
    assert watch.left() == []


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_vanishing_folder_goes_with_its_process(how: signal.Signals) -> None:
    """It is removed with what is in it, and who was told of it is ended, whatever ended the process that asked."""
    code = """
import subprocess, sys
from pathlib import Path
from tests.vanishing import vanishing_folder
with vanishing_folder("rlbench-left-") as folder:
    (folder / "a").mkdir()
    (folder / "a" / "b").touch()
    for place in (folder.parent, Path("/dev/shm")):
        (place / f"{folder.name}-c").touch()
    worker = subprocess.Popen(
        ["sh", "-c", "echo up; exec sleep 600"],
        env={"HERE": str(folder), "PATH": "/usr/bin:/bin"},
        start_new_session=True,
        stdout=subprocess.PIPE,
    )
    worker.stdout.readline()
    print(folder, worker.pid, flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        name, pid = process.stdout.readline().split()
        folder, worker = Path(name), psutil.Process(int(pid))
        assert (folder / "a" / "b").exists()
        os.killpg(process.pid, how)
    wait_until(lambda: not folder.exists(), f"{folder} is gone")
    for place in (folder.parent, Path("/dev/shm")):  # noqa: S108  what is in shared memory has a name there
        gone = place / f"{folder.name}-c"
        wait_until(lambda gone=gone: not gone.exists(), f"{gone} is gone")  # type: ignore[misc]
    wait_until(lambda: has_ended(worker), "its process has ended")
