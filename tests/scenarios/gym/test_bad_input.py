from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rlbench.scenarios.gym import families
from tests.harness.command import assert_refused, call, launch
from tests.harness.runs import has_ended, wait_until
from tests.scenarios.gym.test_making import scenario_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gym", "name an environment: gym/CartPole-v1"),
        ("gym/CartPol-v1", "gym/CartPol-v1: there is no such environment; nearest: CartPole-v1"),
        ("gym/CartPole", "nearest: CartPole-v0, CartPole-v1"),
        ("gym/CartPole-v9", "nearest: CartPole-v"),
        ("gym/procgen-coinrun-v0", "of the package procgen2, which is not installed; pip install 'procgen2'"),
        ("gym/LunarLander-v3", "pip install 'gymnasium[box2d]'"),
        ("gym/no_such_package:It-v0", "no_such_package: there is no such module; install its package"),
        ("gym/gymnasium:It-v0", "gymnasium registers no environment It-v0"),
        ("gym/CartPole-v1:kwargs.foo=1", "takes no kwargs.foo; it takes: sutton_barto_reward, render_mode"),
        ("gym/CartPole-v1:kwargs.render_mode=human", "kwargs.render_mode=human: needs a display"),
        ("gym/CartPole-v1:kwargs.max_episode_steps=3", "write max_episode_steps=N"),
        ("gym/CartPole-v1:kwargs=3", "must be kwargs.NAME=VALUE"),
        ("gym/CartPole-v1:kwargs.a.b=3", "must be kwargs.NAME=VALUE"),
        ("gym/CartPole-v1:kwargs.a-b=3", "must be names of arguments"),
        ("gym/CartPole-v1:kwarg.size=3", "unknown field; did you mean 'kwargs.NAME'? known: "),
        ("gym/CartPole-v1:ids", "CartPole-v1: is no module"),
        ("gym/CartPole-v1:code=3", "unknown field"),
        ("gym/CartPole-v1:num_envs=0", "must be at least 1"),
        ("gym/CartPole-v1:max_episode_steps=-1", "must be at least 0; 0 is the id's own"),
        ("gym/CartPole-v1:action_bounds=cut", "Input should be 'clip' or 'tanh'"),
        ("gym/CartPole-v1:without=mission", "its observation is a Box, no Dict"),
        ("gym/./mine.py:Text:without=tolt", "has no such entry; it has: seen, told"),
        ("gym/CartPole-v1:wrappers=gymnasium.wrappers:NoSuch", "gymnasium.wrappers has no NoSuch"),
        ("gym/CartPole-v1:wrappers=json:loads", "wrappers=json:loads: is no subclass of gymnasium.Wrapper"),
        ("gym/CartPole-v1:wrappers=Norm", "must be module:Name, or ./file.py:Name"),
        ("gym/my_package:Warehouse-v0:wrappers=my_package:Picky", "its constructor raised LookupError: no shelf"),
        ("gym/./mine.py:NoEnv", "gym/./mine.py:NoEnv: is no subclass of gymnasium.Env"),
        ("gym/./mine.py:NoSuch", "has no NoSuch; its classes: Good, NoEnv"),
        ("gym/./mine.py", "name its class too: gym/./mine.py:CLASS"),
        ("gym/./other.py:Good", "other.py is not there"),
        ("gym/./broken.py:Good", "broken.py cannot be imported: NameError"),
        ("gym/./mine.py:Raises", "its constructor raised LookupError: the map is not there"),
        ("gym/./mine.py:Leaves", "its constructor raised SystemExit: bye"),
        ("gym/./mine.py:NoDisplay", "needs a display, which is not there"),
        ("gym/./mine.py:NoSpaces", "its observation_space is int, it must be one of gymnasium.spaces"),
        ("gym/./mine.py:Text", "told: a Text, and policies know Box, Discrete"),
        ("gym/./mine.py:Text", "without=told removes it"),
        ("gym/./mine.py:Acts", "its action_space: a Text, and policies know"),
        ("gym/./mine.py:Counts", "dtype int64, its space says float32"),
        ("gym/./mine.py:Good:ids=CartPole-v1", "must have ./mine.py:Good among them; or write gym:ids=…"),
        ("gym/CartPole-v1:kwargs.id=3", "kwargs.id: is no argument; it is the name behind gym/"),
        ("gym/./:Good", "./: is no module; a class in a file is written ./FILE.py:CLASS"),
        ("gym/./pipe.py:Good", "pipe.py is no regular file"),
        ("gym/./mine.py:Beyond", "7.0 is beyond its bounds"),
        ("gym/./mine.py:Single", "must return (observation, info)"),
        ("gym/./mine.py:ResetRaises", "its first reset raised ZeroDivisionError: no cells"),
        ("gym/./mine.py:Needs", "its constructor must be given size, speed; write :kwargs.size=…:kwargs.speed=…"),
        ("gym/./mine.py:Needs:kwargs.size=3", "its constructor must be given speed; write :kwargs.speed=…"),
        ("gym/./mine.py:NoSeed", "takes no seed; write def reset(self, *, seed=None, options=None)"),
        ("gym/./mine.py:CloseRaises", "its close raised OSError: still open"),
        ("gym/./mine.py:a_function", "is a function, and no subclass of gymnasium.Env; name the class, or register it"),
        ("gym/CartPole-v1:ids=CartPole-v0+CartPole-v1", "environments differ; add --workload heterogeneous"),
        ("gym/./mine.py:Good:kwargs.low=1..2", "kwargs.low=1..2: environments differ; add --workload heterogeneous"),
        ("mujoco/ants", "unknown task; did you mean 'ant'? known: halfcheetah, ant"),
        ("mujoco/hopper:action_bounds=tanh:kwargs.foo=1", "takes no kwargs.foo"),
        ("minigrid/DoorKey", "unknown grid world; did you mean 'DoorKey-8x8'? known: DoorKey-8x8"),
    ],
)
@pytest.mark.usefixtures("my_package", "mine")
def test_what_cannot_be_is_refused_in_a_line(text: str, expected: str) -> None:
    """Before any rank starts, with the rule and what to do."""
    Path("broken.py").write_text("NO_SUCH_NAME\n", encoding="utf-8")
    os.mkfifo("pipe.py")
    options = ("--systems", "sync", "--device", "cpu", "--out", "runs", "--dry-run")
    assert_refused(call("run", *options, "--scenario", text), expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gym/CartPole-v1", "nothing differs; give an argument a range, kwargs.NAME=5..20, or several ids"),
        ("gym:ids=CartPole-v1+Acrobot-v1", "Acrobot-v1 has the observation space Box"),
        ("gym/my_package:Warehouse-v0:kwargs.size=20..5", "kwargs.size=20..5: a range must ascend"),
        (
            "gym/my_package:Warehouse-v0:kwargs.names=wide:kwargs.size=4..6",
            "with size=6 has the action space Discrete(6)",
        ),
    ],
)
@pytest.mark.usefixtures("my_package")
def test_environments_that_differ_must_differ_well(text: str, expected: str) -> None:
    """In something, and not in their spaces: both are named."""
    with pytest.raises(ValueError, match=r"^gym") as raised:
        scenario_of(text, "heterogeneous")
    assert expected in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.usefixtures("mine")
def test_a_file_in_the_working_folder_is_no_module() -> None:
    """Somebody who names it as one is told how it is written."""
    with pytest.raises(ValueError, match=r"^gym/mine:Good: mine: there is no such module; .* write \./mine\.py:Class$"):
        scenario_of("gym/mine:Good")


def test_a_family_whose_package_is_missing_says_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a scenario, and in the list."""
    monkeypatch.setattr(families, "find_spec", lambda _: None)
    for name, package in (("mujoco", r"'gymnasium\[mujoco\]'"), ("minigrid", "minigrid")):
        with pytest.raises(ValueError, match=rf"{name} is not installed; pip install {package}"):
            scenario_of(name)
    assert families.MINIGRID.variants == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "gym/./mine.py:Leaves0",
            "gym/./mine.py:Leaves0: the process that made, reset and closed it ended with exit code 0",
        ),
        (
            "gym/./mine.py:Aborts",
            "gym/./mine.py:Aborts: the process that made, reset and closed it was killed by SIGABRT",
        ),
        (
            "gym:ids=./mine.py:Good+./mine.py:Aborts --workload heterogeneous",
            "gym: ./mine.py:Aborts: the process that made, reset and closed it was killed by SIGABRT",
        ),
    ],
)
def test_an_environment_that_ends_its_process_does_not_end_the_command(text: str, expected: str, mine: Path) -> None:
    """It is told in a line, and the command fails."""
    options = ("--systems", "sync", "--device", "cpu", "--out", "runs", "--dry-run")
    ended = launch("run", *options, "--scenario", *text.split(), folder=mine.parent)
    assert_refused(ended, expected.replace(": ./mine.py", f": {mine}"))


HANGS = """
from rlbench.scenarios.gym import making, trials

trials.TRIAL_S = 3
recipes = [making.Recipe(id=f"{__import__('sys').argv[1]}:{name}") for name in ("Good", "Hangs")]
making.TRIALS.apart(recipes)
assert making.TRIALS.of(recipes[0])
try:
    making.TRIALS.of(recipes[1])
except ValueError as error:
    print(error)
"""


def test_a_process_that_hangs_is_killed_with_what_it_has_started(mine: Path) -> None:
    """What was tried before it is known."""
    command = [sys.executable, "-c", HANGS, str(mine)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert ended.stdout == "has not been made and reset in 3 s; it hangs, or needs a display\n", ended.stderr
    sleeper = int(mine.with_name("sleeper").read_text(encoding="ascii"))
    wait_until(lambda: not psutil.pid_exists(sleeper) or has_ended(psutil.Process(sleeper)), "it has ended")


SLEEPS = """
import time
from rlbench.scenarios.gym import making, trials

trials.TRIAL_S = 0.2
making.make = lambda _: time.sleep(60)
making.TRIALS.of(making.Recipe(id="Sleeps-v0"))
"""


def test_an_environment_that_hangs_while_it_is_made_ends_the_command() -> None:
    """In a line, whatever it hangs in: nobody waits for ever."""
    ended = subprocess.run([sys.executable, "-c", SLEEPS], capture_output=True, text=True, check=False, timeout=50)
    assert ended.returncode == 2
    assert (
        ended.stderr == "rlbench: gym/Sleeps-v0: has not been made and reset in 0.2 s; it hangs, or needs a display\n"
    )
