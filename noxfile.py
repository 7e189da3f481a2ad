"""The project's commands, in an environment that all share but two: `nox -s rlbench -- run ...`, `nox -s tests`."""

import hashlib
import os
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "tests"]

CONSTRAINTS = ("-c", "constraints.txt")
PROJECT = nox.project.load_toml("pyproject.toml")
SHARED = Path(".nox", "shared").absolute()
GROUPS = ("tests", "types", "bench", "browser")
CHECKS = ("-o", "python_files=check_*.py", "-o", "python_functions=check_*", "-o", "norecursedirs=.*")
"""Options of pytest for what is no test of every day."""
CORES = len(os.sched_getaffinity(0))
FILES = ("-n", str(2 + CORES), "--dist", "loadfile", "--no-loadscope-reorder")
"""Files of tests side by side, two more than there are cores: many wait. The order is that of `conftest.py`."""
DEATHS = ("-n", str(1 + CORES), "--dist", "loadgroup")
"""Checks side by side that keep processes busy: few wait long."""


def shared(session: nox.Session) -> None:
    """Enters the environment that the sessions share; makes it where it is of other versions than are asked for."""
    wanted = hashlib.sha256(b"".join(Path(name).read_bytes() for name in ("pyproject.toml", "constraints.txt")))
    made_of, python = SHARED / "made-of", str(SHARED / "bin" / "python")
    if not made_of.exists() or made_of.read_text() != wanted.hexdigest():
        groups = nox.project.dependency_groups(PROJECT, *GROUPS)
        session.run(sys.executable, "-m", "venv", "--clear", str(SHARED), external=True)
        session.run(
            *(python, "-m", "pip", "install", "--quiet", *CONSTRAINTS, "-e", ".[scenes,slurm]", *groups), external=True
        )
        packages = [path.name for path in Path().iterdir() if (path / "__init__.py").exists()]
        # They are not compiled by pip, and hundreds of processes would do so at once.
        session.run(python, "-m", "compileall", "-q", "-j", "0", *packages, external=True)
        made_of.write_text(wanted.hexdigest())
    session.env["PATH"] = os.pathsep.join([str(SHARED / "bin"), os.environ["PATH"]])
    session.env["VIRTUAL_ENV"] = str(SHARED)
    session.env["PYTHONDONTWRITEBYTECODE"] = ""


def run(session: nox.Session, program: str, *arguments: str) -> None:
    """Runs a program of the shared environment."""
    shared(session)
    session.run(str(SHARED / "bin" / program), *arguments, external=True)


def check(session: nox.Session, folder: str, *options: str) -> None:
    """Runs the checks in a folder, or those of them that the arguments after `--` choose."""
    run(session, "pytest", folder, *CHECKS, *options, *session.posargs)


@nox.session(venv_backend="none")
def rlbench(session: nox.Session) -> None:
    """Runs `rlbench` with the arguments after `--`."""
    run(session, "rlbench", *session.posargs)


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """Runs what is for every change, or the tests named after `--`, side by side; `-- --times` says what takes long."""
    run(session, "pytest", *FILES, *session.posargs)


@nox.session(venv_backend="none")
def deep(session: nox.Session) -> None:
    """Runs everything, for a release: all tests, and all that is checked of deaths, hosts, jobs, pages and throughput.

    As root, and with Debian's packages chromium, slurm-wlm, munge and iproute2. Takes long.
    """
    run(session, "pytest", "--deep", *FILES)
    for name in ("gate", "browser", "survive"):
        session.notify(name, ["--deep"])


@nox.session(venv_backend="none")
def gate(session: nox.Session) -> None:
    """Holds this commit against `benchmarks/gate/baseline.py`: instructions, allocations and steps/s; takes 4 min.

    Needs Debian's package valgrind. `-- --deep` has all systems, and holds them against each other; takes long.
    """
    check(session, "benchmarks/gate", "--rlbench")


@nox.session(venv_backend="none")
def browser(session: nox.Session) -> None:
    """Opens reports in Chromium, of Debian's package `chromium`: what they draw, request and download."""
    check(session, "tests/browser")


@nox.session(venv_backend="none")
def gpu(session: nox.Session) -> None:
    """Runs every system on an NVIDIA GPU, and holds what a GPU computes against the CPU; takes 4 min."""
    check(session, "tests/gpu")


@nox.session(venv_backend="none")
def survive(session: nox.Session) -> None:
    """Kills, stops and interrupts real sweeps, on this host, on two, and as jobs of a Slurm, side by side.

    Hosts are network namespaces, and Slurm is a real one of two nodes on this machine: both need root, and Debian's
    packages iproute2, slurm-wlm and munge. `-- --slice 3/10` runs the fourth of ten parts, `-- tests/survive` what
    needs neither.
    """
    is_named = session.posargs[:1] and session.posargs[0].startswith("tests/")
    folders = () if is_named else ("tests/survive", "tests/nodes", "tests/slurm")
    run(session, "pytest", *folders, *CHECKS, *DEATHS, *session.posargs)


@nox.session(venv_backend="none")
def mutations(session: nox.Session) -> None:
    """Makes wrong changes in copies of the repository, and says which test noticed each; takes 20 min."""
    run(session, "python", "-m", "tests.mutations", *session.posargs)


@nox.session(venv_backend="none")
def libraries(session: nox.Session) -> None:
    """Installs other people's libraries, 6 GB in the cache folder, and trains with each; takes long."""
    check(session, "tests/libraries")


@nox.session(venv_backend="none")
def types(session: nox.Session) -> None:
    """Checks types, tests included."""
    run(session, "mypy", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Checks style and format, also of the workflow files that users copy."""
    session.install(*CONSTRAINTS, *nox.project.dependency_groups(PROJECT, "lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    for kind, name in (("github-workflows", "throughput.yml"), ("gitlab-ci", "throughput.gitlab-ci.yml")):
        session.run("check-jsonschema", "--builtin-schema", f"vendor.{kind}", f"docs/ci/{name}")


@nox.session
def docs(session: nox.Session) -> None:
    """Makes a site of docs/ in `site/`, with the docstrings of what others may import; a dead link fails it."""
    session.install(*CONSTRAINTS, *nox.project.dependency_groups(PROJECT, "docs"))
    session.run("sphinx-build", "-W", "--keep-going", "-q", "-c", "docs", ".", "site")


@nox.session(venv_backend="none")
def pictures(session: nox.Session) -> None:
    """Takes the pictures in docs/pictures: of a sweep that it runs in a terminal, and of its report; takes 8 min."""
    run(session, "python", "-m", "benchmarks.pictures")


@nox.session
def fuzz(session: nox.Session) -> None:
    """Reads spoilt files that are made where the last ones led to new code: `-- --runs N KIND ...`.

    `-- canary --seconds 3600` runs all commands on hostile folders instead, and sees that nothing outside changes.
    """
    if session.posargs[:1] == ["canary"]:
        run(session, "python", "-m", "tests.fuzz.canary", *session.posargs[1:])
        return
    groups = nox.project.dependency_groups(PROJECT, "tests", "fuzz")
    session.install(*CONSTRAINTS, "-e", ".[scenes]", *groups)
    session.run("python", "-m", "tests.fuzz.guided", *session.posargs)


BENCHMARKS = {
    "sample-factory": "benchmarks.against.sample_factory",
    "sb3": "benchmarks.against.sb3",
    "runners": "benchmarks.against.runners",
    "batches": "benchmarks.batches",
    "overhead": "benchmarks.overhead.bench_overhead",
    "mechanisms": "benchmarks.mechanisms",
    "two-hosts": "benchmarks.two_hosts",
    "start": "benchmarks.start",
    "memory": "benchmarks.memory",
    "predict": "benchmarks.predict_speed",
    "report": "benchmarks.hot_paths.bench_report",
    "timeline": "benchmarks.hot_paths.bench_timeline",
}
"""Programs that run whole trainings, for minutes each; `nox -s bench -- NAME --help` says what they take."""


@nox.session(venv_backend="none")
def bench(session: nox.Session) -> None:
    """Times the hot paths, then all of `BENCHMARKS`; after `--` either the name of one and its options, or pytest's.

    Nothing else should run on the machine.
    """
    name, *options = session.posargs or [""]
    if name in BENCHMARKS:
        run(session, "python", "-m", BENCHMARKS[name], *options)
        return
    names = ("-o", "python_files=bench_*.py", "-o", "python_functions=test_* bench_*")
    run(
        session, "pytest", "benchmarks/hot_paths", *names, "--benchmark-columns=median,iqr,ops,rounds", *session.posargs
    )
    for module in BENCHMARKS.values() if not session.posargs else ():
        run(session, "python", "-m", module)


@nox.session(venv_backend="none")
def learn(session: nox.Session) -> None:
    """Trains every system to its thresholds and prints the tables; can be stopped and started again. Takes hours."""
    run(session, "python", "-m", "benchmarks.learn", *session.posargs)


@nox.session(venv_backend="none")
def power(session: nox.Session) -> None:
    """Says how small a loss `rlbench gate` sees, and how often it is wrong; can be resumed, and takes hours."""
    run(session, "python", "-m", "benchmarks.power", *session.posargs)


@nox.session(venv_backend="none")
def validate(session: nox.Session) -> None:
    """Holds predictions against runs on emulated GPUs, cell by cell; takes 40 min. Nothing else should run.

    `-- --real` holds predictions from profiles of real scenarios against runs on this machine's CPU instead,
    `-- --published` those from the shipped profiles against the papers.
    """
    others = {"--real": "benchmarks.validate_real", "--published": "benchmarks.validate_published"}
    module = others.get(session.posargs[0]) if session.posargs else None
    run(session, "python", "-m", module or "benchmarks.validate", *session.posargs[module is not None :])
