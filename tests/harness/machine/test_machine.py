from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest
from rich.console import Console

from rlbench.harness.commands.doctor import print_doctor
from rlbench.harness.machine.cgroup import CgroupLimits, read_limits
from rlbench.harness.machine.findings import GIB, MachineFinding, judge
from rlbench.harness.machine.machine import Machine, commit, describe, packages, read_machine
from rlbench.harness.machine.telemetry.gpus import Gpu, read_gpus
from tests.harness.machine.fake_nvml import FakeGpu, installed

GOOD_GPU = Gpu(
    index=0,
    name="H100",
    memory_bytes=80 * GIB,
    memory_used_bytes=0,
    power_limit_w=700,
    temperature_c=30,
    process_ids=(),
    slowdowns=(),
)
GOOD = Machine(
    cpu_model="EPYC",
    num_cores=16,
    num_physical_cores=8,
    num_affine_cores=16,
    cpu_quota_cores=None,
    governors=("performance",),
    turbo=False,
    load_1m=0.5,
    memory_bytes=64 * GIB,
    memory_available_bytes=60 * GIB,
    memory_limit_bytes=None,
    swap_used_bytes=0,
    shm_bytes=32 * GIB,
    shm_free_bytes=32 * GIB,
    gpus=(GOOD_GPU,),
    gpu_source="driver 550",
    os="Debian",
    kernel="6.1",
    python="3.11",
    variables={},
)


def warnings(machine: Machine, num_workers: int | None = None) -> list[MachineFinding]:
    """The findings that are warnings."""
    return [finding for finding in judge(machine, num_workers) if finding.level == "warning"]


def with_gpu(**changes: Any) -> dict[str, Any]:
    """A change of the machine's GPU."""
    return {"gpus": (dataclasses.replace(GOOD_GPU, **changes),)}


def test_good_machine_has_no_warning() -> None:
    """On an idle machine with steady clocks every check is well, and none has advice."""
    found = judge(GOOD, num_workers=16)
    assert {(finding.level, finding.advice) for finding in found} == {("ok", "")}
    assert len(found) == 9


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"num_affine_cores": 2}, "2 of 16 cores by affinity"),
        ({"cpu_quota_cores": 2.5}, "control group allows 2.5 cores' time"),
        ({"governors": ("performance", "powersave")}, "CPU governor performance, powersave"),
        ({"turbo": True}, "CPU turbo on"),
        ({"load_1m": 4.01}, "load 4.01 on 16 cores"),
        ({"memory_available_bytes": 15 * GIB}, "15.0 of 64.0 GiB memory available"),
        ({"swap_used_bytes": GIB}, "1.00 GiB swapped out"),
        ({"shm_free_bytes": 64 << 20}, "0.06 GiB free in /dev/shm"),
        (with_gpu(process_ids=(1,)), "GPU 0 (H100): 1 foreign processes, 0% of its memory in use"),
        (with_gpu(memory_used_bytes=40 * GIB), "GPU 0 (H100): 0 foreign processes, 50% of its memory in use"),
        (with_gpu(slowdowns=("power cap",)), "GPU 0 (H100): clocks held back by power cap"),
    ],
)
def test_each_fault_is_one_warning(changes: dict[str, Any], what: str) -> None:
    """Each thing that could spoil a figure is found, alone, with its numbers and what to do."""
    (warning,) = warnings(dataclasses.replace(GOOD, **changes))
    assert warning.what == what
    assert warning.rule
    assert warning.advice
    assert "\n" not in str(warning)


def test_oversubscribed_cores() -> None:
    """Busy workers are held against the cores that quota and affinity leave, and not at all if unknown."""
    machine = dataclasses.replace(GOOD, cpu_quota_cores=20.0, num_affine_cores=16)
    assert warnings(machine, 16) == []
    assert [warning.what for warning in warnings(machine, 17)] == ["17 busy environment workers on 16 usable cores"]


def test_own_process_on_a_gpu_is_not_foreign() -> None:
    """A process of our own tree on the GPU is no finding, a stranger beside it is."""
    mine = dataclasses.replace(GOOD, **with_gpu(process_ids=(os.getpid(),)))
    assert warnings(mine) == []


def test_what_is_unknown_is_no_finding() -> None:
    """A machine that tells neither governor nor turbo nor shared memory is not warned about for it."""
    machine = dataclasses.replace(GOOD, governors=(), turbo=None, shm_free_bytes=None, shm_bytes=None, gpus=())
    assert warnings(machine) == []


def test_this_machine() -> None:
    """This machine can be read, its description is JSON, and its figures are possible ones."""
    machine = read_machine()
    assert json.loads(json.dumps(describe())).keys() == {field.name for field in dataclasses.fields(Machine)}
    assert 1 <= machine.num_affine_cores <= machine.num_cores
    assert 0 < machine.num_usable_cores <= machine.num_affine_cores
    assert 0 < machine.memory_available_bytes <= machine.memory_bytes
    assert machine.python == ".".join(map(str, sys.version_info[:3]))
    assert all(isinstance(finding, MachineFinding) for finding in judge(machine, 1))


def test_variables_of_threads_and_memory_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a user has set of threads and allocators is in the description, by name; nothing else of the environment."""
    for name in read_machine().variables:
        monkeypatch.delenv(name)
    given = {"LD_PRELOAD_": "no", "MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1", "TOKEN": "secret", "XOMP_A": "no"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert read_machine().variables == {"MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1"}


def write(root: Path, files: dict[str, str]) -> None:
    """Writes files below a folder that stands for /."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"
V1_MOUNTS = (
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)


@pytest.mark.parametrize(
    ("files", "limits"),
    [
        ({}, CgroupLimits(cpu_quota_cores=None, memory_bytes=None)),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "proc/self/mountinfo": V2_MOUNT,
                "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
                "sys/fs/cgroup/a/memory.max": "max\n",
                "sys/fs/cgroup/a/b/memory.max": "1000\n",
            },
            CgroupLimits(cpu_quota_cores=1.5, memory_bytes=1000),
        ),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/a\n4:memory:/docker/x\n0::/\n",
                "proc/self/mountinfo": V1_MOUNTS,
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "200000\n",
                "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "2000\n",
            },
            CgroupLimits(cpu_quota_cores=2.0, memory_bytes=2000),
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/\n",
                "proc/self/mountinfo": V1_MOUNTS,
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            CgroupLimits(cpu_quota_cores=None, memory_bytes=None),
        ),
    ],
    ids=["none", "v2", "v1", "v1-no-limit"],
)
def test_cgroup_limits(tmp_path: Path, files: dict[str, str], limits: CgroupLimits) -> None:
    """The least limit of the group and those above it holds, in versions 1 and 2, in a container and outside."""
    write(tmp_path, files)
    assert read_limits(tmp_path) == limits


@pytest.mark.parametrize(
    ("files", "turbo"),
    [
        ({}, None),
        ({"intel_pstate/no_turbo": "0\n"}, True),
        ({"intel_pstate/no_turbo": "1\n"}, False),
        ({"cpufreq/boost": "1\n"}, True),
    ],
)
def test_clocks(tmp_path: Path, files: dict[str, str], turbo: bool | None) -> None:
    """Governors of all cores and turbo are read as Linux tells them for Intel and others."""
    governors = {
        f"cpu{core}/cpufreq/scaling_governor": f"{name}\n" for core, name in enumerate(("powersave", "performance"))
    }
    write(tmp_path / "sys/devices/system/cpu", files | governors)
    write(tmp_path, {"proc/cpuinfo": "processor\t: 0\nmodel name\t: Some CPU\n\nprocessor\t: 1\nmodel name\t: Other\n"})
    machine = read_machine(tmp_path)
    assert machine.turbo is turbo
    assert machine.governors == ("performance", "powersave")
    assert machine.cpu_model == "Some CPU"


def test_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs are described with what holds back their clocks and who computes on them; what one does not tell is None."""
    reasons = pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonGpuIdle
    hidden = FakeGpu(fails=dict.fromkeys(("memory", "reasons", "processes"), pynvml.NVML_ERROR_NO_PERMISSION))
    with installed(monkeypatch, FakeGpu(reasons=reasons, pids=(11, 12)), hidden):
        (first, second), source = read_gpus()
    assert source == "driver 550.54"
    assert (first.name, first.process_ids, first.slowdowns) == ("NVIDIA H100", (11, 12), ("power cap",))
    assert (first.memory_bytes, first.memory_used_bytes, first.power_limit_w) == (80 * GIB, GIB, 700)
    assert (second.memory_bytes, second.process_ids, second.slowdowns) == (None, (), ())


def test_packages() -> None:
    """Versions come from the installed metadata: nothing heavy is imported to learn them."""
    assert packages()["numpy"] == __import__("numpy").__version__
    program = (
        "import sys; from rlbench.harness.machine.machine import packages; packages(); "
        "print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_commit(tmp_path: Path) -> None:
    """The commit of a folder, `-dirty` when a tracked file was changed, None outside git and before a first commit."""
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent), "GIT_CONFIG_GLOBAL": os.devnull}

    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert commit(tmp_path / "nowhere") is None
    git("init", "-q")
    assert commit(tmp_path) is None
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-q", "-m", "a")
    assert commit(tmp_path) == git("rev-parse", "HEAD")
    (tmp_path / "a").write_text("2")
    assert commit(tmp_path) == git("rev-parse", "HEAD") + "-dirty"


def test_doctor_prints_all_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor names the machine and every finding, warnings first, and ends well even so."""
    file = io.StringIO()
    bad = dataclasses.replace(GOOD, load_1m=16.0)
    monkeypatch.setattr("rlbench.harness.commands.doctor.read_machine", lambda: bad)
    assert print_doctor(Console(file=file, width=160), num_workers=4) == 0
    lines = file.getvalue().splitlines()
    levels = [line.split()[0] for line in lines if line.startswith(("ok ", "warning "))]
    assert levels == ["warning", *["ok"] * 8]
    assert lines[-1] == "1 of 9 checks warns of what could spoil a figure"
    assert any("GPU 0" in line and "H100, 80 GiB, 700 W" in line for line in lines)


def test_doctor_breaks_lines_below_their_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a narrow terminal no line is wider than it or ends in blanks, and what goes on is indented."""
    file = io.StringIO()
    monkeypatch.setattr("rlbench.harness.commands.doctor.read_machine", lambda: dataclasses.replace(GOOD, load_1m=16.0))
    print_doctor(Console(file=file, width=60), num_workers=4)
    lines = file.getvalue().splitlines()
    assert all(len(line) <= 60 and line == line.rstrip() for line in lines)
    heads = {line.split()[0] for line in lines if line[:1].strip()}
    assert heads <= {"CPU", "memory", "GPU", "GPUs", "system", "packages", "ok", "warning", "1"}


@pytest.mark.parametrize(("load", "code"), [(16.0, 1), (0.0, 0)])
def test_a_strict_doctor_fails_on_a_warning(monkeypatch: pytest.MonkeyPatch, load: float, code: int) -> None:
    """With `strict` one warning is enough for exit code 1; a machine without any gives 0."""
    machine = dataclasses.replace(GOOD, load_1m=load)
    monkeypatch.setattr("rlbench.harness.commands.doctor.read_machine", lambda: machine)
    assert print_doctor(Console(file=io.StringIO()), num_workers=4, strict=True) == code


def test_doctor_of_an_unreadable_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only when nothing can be read does the doctor fail, and then with one line."""

    def unreadable() -> Machine:
        raise PermissionError(13, "Permission denied", "/proc/meminfo")

    file = io.StringIO()
    monkeypatch.setattr("rlbench.harness.commands.doctor.read_machine", unreadable)
    assert print_doctor(Console(file=file, width=160)) == 1
    assert file.getvalue() == "this machine cannot be read: [Errno 13] Permission denied: '/proc/meminfo'\n"
