from __future__ import annotations

from pathlib import Path

import pytest

from rlbench.scenarios.pettingzoo_envs import families, finding
from tests.harness.command import assert_refused, call, launch

OPTIONS = ("--systems", "sync", "--device", "cpu", "--out", "runs", "--dry-run")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pettingzoo", "name an environment: pettingzoo/mpe/simple_spread_v3"),
        ("pettingzoo/mpe/simple_spred_v3", "there is no such environment; nearest: mpe/simple_spread_v3"),
        ("pettingzoo/mpe/simple_spread_v9", "nearest: mpe/simple_spread_v3; "),
        ("pettingzoo/simple_spread_v3", "nearest: mpe/simple_spread_v3"),
        ("pettingzoo/butterfly/nothing_like_it", "no such environment; one of a package is written"),
        ("pettingzoo/no_such_package.game", "no_such_package.game: there is no such module; install its package"),
        ("pettingzoo/json.decoder", "json.decoder has no parallel_env; a class is written pettingzoo/MODULE:CLASS"),
        ("pettingzoo/./game.py", "name its class too: pettingzoo/./game.py:CLASS"),
        ("pettingzoo/./game.py:NoSuch", "has no NoSuch; its classes: Tag, Solo"),
        ("pettingzoo/./game.py:NUMBER", "is a int, it must be a class, or a function that makes one"),
        ("pettingzoo/./other.py:Tag", "other.py is not there"),
        ("pettingzoo/./game.py:Tag:kwargs.foo=1", "takes no kwargs.foo; it takes: taggers, runners, steps, reach"),
        ("pettingzoo/./game.py:Tag:kwargs.render_mode=human", "kwargs.render_mode=human: needs a display"),
        ("pettingzoo/./game.py:Tag:wrappers=./game.py:NUMBER", "is a int, it must take an environment"),
        ("pettingzoo/./game.py:Tag:wrappers=./game.py:NoEnv", "game.py:NoEnv: it raised TypeError"),
        ("pettingzoo/./game.py:Tag:agents_per_env=3", "it has 4 agents; leave it out"),
        ("pettingzoo/./game.py:Tag:num_envs=0", "num_envs=0: must be at least 1"),
        ("pettingzoo/./game.py:Tag:steps=3", "unknown field; known: num_envs"),
        ("pettingzoo/./game.py:Tag:id=3", "unknown field"),
        ("pettingzoo/./game.py:Tag:kwargs.runners=1..2", "environments differ; add --workload heterogeneous"),
        ("pettingzoo/./game.py:Differs", "wrappers=supersuit:pad_observations_v0 pads them (pip install supersuit)"),
        ("pettingzoo/./game.py:Acts", "that of runner_0 is Discrete(4); agents share a policy, so they must"),
        ("pettingzoo/mpe/simple_world_comm_v3", "pad_observations_v0+supersuit:pad_action_space_v0 pads them"),
        ("pettingzoo/./game.py:Text", "its observation_space: a Text, and policies know Box"),
        (
            "pettingzoo/./game.py:NoSpace",
            "its observation_space('tagger_0') is int, it must be one of gymnasium.spaces",
        ),
        ("pettingzoo/./game.py:NoEnv", "gave a NoEnv, which is no parallel environment: it has no reset()"),
        ("pettingzoo/./game.py:Nobody", "its possible_agents are []"),
        ("pettingzoo/./game.py:Twins", "its possible_agents are not all different"),
        ("pettingzoo/./game.py:Empty", "its first reset left no agents"),
        ("pettingzoo/./game.py:Stranger", "agent stranger: is in `agents` after its first reset"),
        ("pettingzoo/./game.py:Unseen", "agent tagger_0: its first reset gave it no observation"),
        ("pettingzoo/./game.py:Beyond", "agent tagger_0: its first observation is outside its observation_space"),
        ("pettingzoo/./game.py:Single", "its first reset must return (observations, infos)"),
        ("pettingzoo/./game.py:Raises", "its constructor raised LookupError: the map is not there"),
        ("pettingzoo/./game.py:NoDisplay", "needs a display, which is not there"),
        ("pettingzoo/./game.py:InTurn", "its agents act one after the other"),
        ("pettingzoo/./game.py:made", "gave an AEC environment (InTurn): its agents act one after the other"),
    ],
)
@pytest.mark.usefixtures("game")
def test_what_cannot_be_is_refused_in_a_line(text: str, expected: str) -> None:
    """Before any rank starts, with the rule and what to do."""
    assert_refused(call("run", *OPTIONS, "--scenario", text), expected)


@pytest.mark.usefixtures("game")
def test_environments_of_different_agents_are_not_of_one_scenario() -> None:
    """An argument that changes how many agents there are is no range of a workload."""
    text = "pettingzoo/./game.py:Tag:kwargs.runners=1..3"
    told = "the same agents and spaces: with runners=3 it has 5 agents"
    assert_refused(call("run", *OPTIONS, "--workload", "heterogeneous", "--scenario", text), told)


@pytest.mark.usefixtures("game")
def test_a_heterogeneous_workload_needs_a_range() -> None:
    """Agents of one environment differ by themselves; environments do not."""
    text = "pettingzoo/./game.py:Tag"
    assert_refused(call("run", *OPTIONS, "--workload", "heterogeneous", "--scenario", text), "nothing differs; give")


def test_an_environment_whose_agents_act_in_turn_is_told(game: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of PettingZoo's that has no `parallel_env` has an AEC environment alone."""
    monkeypatch.syspath_prepend(str(game.parent))
    (game.parent / "chess_like.py").write_text("def env(): ...\n", encoding="utf-8")
    text = "pettingzoo/chess_like"
    assert_refused(
        call("run", *OPTIONS, "--scenario", text), "chess_like has no parallel_env: its agents act one after"
    )


def test_what_is_not_installed_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """PettingZoo itself, a package of some of its environments, or what one of these needs."""
    monkeypatch.setattr(finding, "_is_there", lambda home: home != "mpe2" and not home.endswith(".mpe"))
    told = "is of mpe2, which is not installed; pip install mpe2"
    assert_refused(call("run", *OPTIONS, "--scenario", "pettingzoo/mpe/simple_spread_v3"), told)
    told = "needs what is not installed (ModuleNotFoundError: No module named 'multi_agent_ale_py'"
    assert_refused(call("run", *OPTIONS, "--scenario", "pettingzoo/atari/pong_v3"), told, "'pettingzoo[atari]'")
    monkeypatch.setattr(families, "find_spec", lambda _: None)
    told = "pettingzoo is not installed; pip install pettingzoo"
    assert_refused(call("run", *OPTIONS, "--scenario", "pettingzoo/mpe/simple_spread_v3"), told)


@pytest.mark.parametrize(("name", "how"), [("Leaves0", "ended with exit code 0"), ("Aborts", "was killed by SIGABRT")])
def test_an_environment_that_ends_its_process_does_not_end_the_command(name: str, how: str, game: Path) -> None:
    """It is told in a line, and the command fails."""
    ended = launch("run", *OPTIONS, "--scenario", f"pettingzoo/./game.py:{name}", folder=game.parent)
    assert_refused(ended, f"pettingzoo/./game.py:{name}: the process that made, reset and closed it {how}")
