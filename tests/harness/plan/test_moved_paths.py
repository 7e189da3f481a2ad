from __future__ import annotations

from pathlib import Path

import pytest

from rlbench.harness.plan.moved_paths import Move

HOME = Path("/home/me/sweeps")


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("runs", "sweeps/runs"),
        ("./runs", "./sweeps/runs"),
        ("../runs", "runs"),
        ("./../runs", "./runs"),
        ("../../you/runs", "../you/runs"),
        ("/data/runs", "/data/runs"),
    ],
)
def test_a_path_is_read_from_another_folder(text: str, moved: str) -> None:
    """It leads to the same file; `./` stays, because it is a part of the names of scenarios."""
    there = Move(home=HOME, to=HOME.parent)
    assert there.path(text) == moved
    assert Move(home=HOME.parent, to=HOME).path(moved) == text
    assert Move(home=HOME, to=HOME).path(text) == text


def test_home_folders_are_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """No shell reads a file."""
    monkeypatch.setenv("HOME", "/home/me")
    assert Move(home=HOME, to=HOME).path("~/runs") == "/home/me/runs"


def test_a_link_that_is_left_again(tmp_path: Path) -> None:
    """`link/../x` is what the system says, beside the folder that the link leads to."""
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "link").symlink_to("far/away")
    text = Move(home=tmp_path, to=tmp_path / "far").path("link/../x")
    assert Path(text).resolve() == tmp_path / "far" / "x"


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("sync,mine=./mine.toml", "sync,mine=./sweeps/mine.toml"),
        ("ver:preempt=never", "ver:preempt=never"),
    ],
)
def test_systems(text: str, moved: str) -> None:
    """Files of trainers are paths; nothing else is."""
    assert Move(home=HOME, to=HOME.parent).systems(text) == moved


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("emulated/x.toml:num_envs=2,pointnav", "emulated/sweeps/x.toml:num_envs=2,pointnav"),
        ("emulated/open-fridge", "emulated/open-fridge"),
        ("gym/./x.py:It", "gym/./sweeps/x.py:It"),
        ("gym/~/x.py:It", "gym/~/x.py:It"),
        ("gym//opt/x.py:It", "gym//opt/x.py:It"),
        ("gym/pack:Id-v0:wrappers=pack:Norm+../y.py:Own", "gym/pack:Id-v0:wrappers=pack:Norm+y.py:Own"),
        ("gym:ids=./x.py:It+CartPole-v1:kwargs.file=x.py", "gym:ids=./sweeps/x.py:It+CartPole-v1:kwargs.file=x.py"),
        ("pettingzoo/./x.py:It", "pettingzoo/./sweeps/x.py:It"),
        ("pettingzoo/mpe/simple_spread_v3", "pettingzoo/mpe/simple_spread_v3"),
        ("habitat:scenes=glb:resolution=64", "habitat:scenes=sweeps/glb:resolution=64"),
        ("no/./such.toml", "no/./such.toml"),
    ],
)
def test_scenarios(text: str, moved: str) -> None:
    """Families say which of their parts are paths: profiles, files of code, folders of scenes."""
    assert Move(home=HOME, to=HOME.parent).scenarios(text) == moved


@pytest.mark.parametrize("folder", ["a,b", "a:b", "a+b", "a=b"])
def test_folders_that_the_command_line_cannot_name(folder: str) -> None:
    """A scenario below such a folder is refused, and what to do is said; a trainer's file need only lack commas."""
    move = Move(home=Path("/", folder), to=Path("/"))
    with pytest.raises(ValueError, match=r"x\.toml: is a.b/x\.toml from /, in which '.' separates parts"):
        move.scenarios("emulated/x.toml")
    if folder != "a,b":
        assert move.systems("mine=x.toml") == f"mine={folder}/x.toml"
