from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import rlbench_client
from rlbench.systems.external.counts import WAIT_S, BadCounters, CounterFiles
from rlbench_client.counters import AT, SIZE, SPANS_AT, CounterFile
from tests.rlbench_client.counting_env import CountingEnv
from tests.rlbench_client.reading import counters
from tests.rlbench_client.test_counted import play

__all__ = ["counters"]


def set_int(name: str, value: int) -> Callable[[CounterFile], None]:
    """Writes into a file what the client would not."""

    def write(file: CounterFile) -> None:
        file.ints[AT[name]] = value

    return write


def set_float(at: int, value: float) -> Callable[[CounterFile], None]:
    """The same, of a number of seconds."""

    def write(file: CounterFile) -> None:
        file.floats[at] = value

    return write


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (set_int("magic", 7), "is no file of counters of this version of rlbench_client"),
        (set_int("env_steps", 5), "env_steps went back from 10 to 5: a counter never falls"),
        (set_int("env_steps", -1), "env_steps=-1: must be from 0 to"),
        (set_int("frames", 2**62), r"frames=4611686018427387904: must be from 0 to"),
        (set_float(AT["step_s"], float("nan")), "step_s=nan: must be from 0 to"),
        (set_float(SPANS_AT, float("inf")), "other=inf: must be from 0 to"),
    ],
)
def test_counters_that_cannot_be_are_refused(
    counters: Path,  # noqa: ARG001  it sets the variable
    damage: Callable[[CounterFile], None],
    expected: str,
) -> None:
    """A counter that falls, is negative, absurdly large or no number, and a file of another kind, are named."""
    file = CounterFile(num_envs=1)
    file.ints[AT["env_steps"]] = 10
    files = CounterFiles(Path(os.environ["RLBENCH_COUNTERS"]))
    files.look()
    damage(file)
    with pytest.raises(BadCounters, match=expected):
        files.look()


def test_the_rest_of_an_environments_time_is_waiting(counters: Path) -> None:
    """From its first reset to its latest answer, without steps and resets; seconds since the look before."""
    file = CounterFile(num_envs=1)
    files = CounterFiles(counters)
    for name, seconds in (("began_at", 1.0), ("answered_at", 10.0), ("step_s", 2.0), ("reset_s", 3.0)):
        file.floats[AT[name]] = seconds
    assert [change.seconds[WAIT_S] for change in files.look()] == [4.0]
    file.floats[AT["answered_at"]] = 12.0
    file.floats[AT["reset_s"]] = 3.5
    assert [change.seconds[WAIT_S] for change in files.look()] == [1.5]


def test_what_is_no_file_of_counters_is_refused(counters: Path) -> None:
    """Files of another size, folders, pipes and links: none is waited for or followed."""

    def make_pipe(path: Path) -> None:
        os.mkfifo(path)

    def make_link(path: Path) -> None:
        path.symlink_to("/dev/zero")

    for make, expected in (
        (lambda path: path.write_bytes(b"garbage"), f"it has 7 bytes, not {SIZE:,}"),
        (lambda path: path.write_bytes(bytes(SIZE)), "is no file of counters of this version"),
        (Path.mkdir, "is no file of counters"),
        (make_pipe, "is no file of counters"),
        (make_link, "cannot be read: Too many levels of symbolic links"),
    ):
        path = counters / "bad.counters"
        make(path)
        with pytest.raises(BadCounters, match=f"bad.counters: .*{expected}"):
            CounterFiles(counters).look()
        path.rmdir() if path.is_dir() else path.unlink()


def test_many_episodes_are_all_counted(counters: Path) -> None:
    """Between two looks more episodes may end than a file keeps: all count, and the latest can be read."""
    env = rlbench_client.count(CountingEnv())
    play(env, 10_000)
    files = CounterFiles(counters)
    (change,) = files.look()
    assert change.counts["episodes"] > 256 == len(change.episodes)
    assert change.counts["env_steps"] == 10_000
    metrics = files.metrics()
    assert metrics["return"] == pytest.approx(2 * metrics["length"])
    assert set(metrics) == {"return", "length"}
