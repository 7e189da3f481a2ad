"""The project's commands, each in a virtual environment of its own: `nox -s rlbench -- run ...`, `nox -s tests`."""

from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "tests"]

CONSTRAINTS = ("-c", "constraints.txt")
CHECKS = ("-o", "python_files=check_*.py", "-o", "python_functions=check_*", "-o", "norecursedirs=.*")
"""Options of pytest for what is no test of every day."""
PROJECT = nox.project.load_toml("pyproject.toml")


def install(session: nox.Session, *groups: str) -> None:
    """Installs the package from this folder, and what the named dependency groups add, all with the pinned versions."""
    session.install(*CONSTRAINTS, "-e", ".[scenes]", *nox.project.dependency_groups(PROJECT, *groups))


@nox.session
def rlbench(session: nox.Session) -> None:
    """Runs `rlbench` with the arguments after `--`."""
    session.install(*CONSTRAINTS, ".[scenes]")
    session.run("rlbench", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Runs all tests, or those named after `--`."""
    install(session, "tests")
    session.run("pytest", *session.posargs)


@nox.session
def gate(session: nox.Session) -> None:
    """Holds systems against each other on emulated GPUs, and hot paths against reference operations; takes 4 min.

    What was measured is left in `.benchmarks/gate.json`.
    """
    install(session, "bench")
    names = ("-o", "python_files=check_*.py", "-o", "python_functions=check_*")
    Path(".benchmarks").mkdir(exist_ok=True)
    out = ("--benchmark-json=.benchmarks/gate.json", "--benchmark-columns=median,iqr,rounds")
    session.run("pytest", "tests/gate", "--rlbench", *names, *out, *session.posargs)


@nox.session
def browser(session: nox.Session) -> None:
    """Opens reports in Chromium, of Debian's package `chromium`: what they draw, request and download."""
    install(session, "browser")
    session.run("pytest", "tests/browser", *CHECKS, *session.posargs)


@nox.session
def survive(session: nox.Session) -> None:
    """Kills, stops and interrupts real sweeps; takes hours, `--share 0.1` after `--` a tenth of it."""
    install(session, "tests")
    session.run("pytest", "tests/survive", *CHECKS, *session.posargs)


@nox.session
def nodes(session: nox.Session) -> None:
    """Runs sweeps on two hosts, which are network namespaces, and kills what is on them; as root."""
    install(session, "tests")
    session.run("pytest", "tests/nodes", *CHECKS, *session.posargs)


@nox.session
def slurm(session: nox.Session) -> None:
    """Starts a Slurm of two nodes on this machine, runs sweeps as its jobs, and stops it; as root, takes 8 min.

    Needs Debian's packages slurm-wlm and munge.
    """
    session.install(*CONSTRAINTS, "-e", ".[slurm]", *nox.project.dependency_groups(PROJECT, "tests"))
    session.run("pytest", "tests/slurm", *CHECKS, *session.posargs)


@nox.session
def libraries(session: nox.Session) -> None:
    """Installs other people's libraries, 6 GB in the cache folder, and trains with each; takes long."""
    install(session, "tests")
    session.run("pytest", "tests/libraries", *CHECKS, *session.posargs)


@nox.session
def types(session: nox.Session) -> None:
    """Checks types, tests included."""
    install(session, "tests", "types", "bench", "browser")
    session.run("mypy", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Checks style and format, also of the workflow file that users copy."""
    session.install(*CONSTRAINTS, *nox.project.dependency_groups(PROJECT, "lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", "docs/ci/throughput.yml")


@nox.session
def fuzz(session: nox.Session) -> None:
    """Reads spoilt files that are made where the last ones led to new code: `-- --runs N KIND ...`.

    `-- canary --seconds 3600` runs all commands on hostile folders instead, and sees that nothing outside changes.
    """
    if session.posargs[:1] == ["canary"]:
        install(session, "tests")
        session.run("python", "-m", "tests.fuzz.canary", *session.posargs[1:])
        return
    install(session, "tests", "fuzz")
    session.run("python", "-m", "tests.fuzz.guided", *session.posargs)


BENCHMARKS = {
    "sample-factory": "benchmarks.against_sample_factory",
    "sb3": "benchmarks.against_sb3",
    "runners": "benchmarks.against_runners",
    "overhead": "tests.bench.bench_overhead",
    "mechanisms": "benchmarks.mechanisms",
    "two-hosts": "benchmarks.two_hosts",
    "start": "benchmarks.start",
    "memory": "tests.bench.bench_memory",
    "predict": "benchmarks.predict_speed",
    "report": "tests.bench.bench_report",
}
"""Programs that run whole trainings, for minutes each; `nox -s bench -- NAME --help` says what they take."""


@nox.session
def bench(session: nox.Session) -> None:
    """Times the hot paths, then all of `BENCHMARKS`; after `--` either the name of one and its options, or pytest's.

    Nothing else should run on the machine.
    """
    install(session, "bench")
    name, *options = session.posargs or [""]
    if name in BENCHMARKS:
        session.run("python", "-m", BENCHMARKS[name], *options)
        return
    names = ("-o", "python_files=bench_*.py", "-o", "python_functions=test_* bench_*")
    session.run("pytest", "tests/bench", *names, "--benchmark-columns=median,iqr,ops,rounds", *session.posargs)
    for module in BENCHMARKS.values() if not session.posargs else ():
        session.run("python", "-m", module)


@nox.session
def learn(session: nox.Session) -> None:
    """Trains every system to its thresholds and prints the tables; can be stopped and started again. Takes hours."""
    install(session)
    session.run("python", "-m", "benchmarks.learn", *session.posargs)


@nox.session
def validate(session: nox.Session) -> None:
    """Holds predictions against runs on emulated GPUs, cell by cell; takes 40 min. Nothing else should run."""
    install(session)
    session.run("python", "-m", "benchmarks.validate", *session.posargs)
