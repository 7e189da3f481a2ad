from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.canary.forks import EXECUTE, Forks
from tests.fuzz.canary.library import Library, make_library
from tests.fuzz.canary.playing import Player
from tests.fuzz.canary.rounds import printed
from tests.fuzz.canary.tree import SHM, Bystander, Place, changes
from tests.fuzz.canary.words import QUICK_S
from tests.harness.runs import wait_until
from tests.lanes import deep

ROUNDS = 4
"""So many have a turn of each command."""
RESUMED = (-1, pytest.param(-36, marks=deep))
"""Rounds in which a cell of a killed sweep is run."""
SEED = 1
RESUMING = "run --resume, to its end"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Sweeps, one of which was killed."""
    return make_library(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def player(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Player]:
    """One for all rounds."""
    with Player(tmp_path_factory.mktemp("kept"), seed=SEED, slow_share=0.0, library=library) as made:
        yield made


@pytest.mark.parametrize(
    "first", [0, pytest.param(ROUNDS, marks=deep), pytest.param(2 * ROUNDS, marks=deep)], ids="from round {}".format
)
def test_a_hostile_folder_harms_nothing_outside(player: Player, first: int) -> None:
    """Whatever is in folders of somebody else's, no command changes what is the user's, hangs, or raises."""
    before, num_changes = player.num_rounds, player.num_changes
    player.play(3600.0, first=first, most=before + ROUNDS)
    assert player.faults == {}, player.table()
    assert player.num_rounds == before + ROUNDS
    assert player.num_changes > num_changes + ROUNDS
    assert all(player.codes[name].total() for name in player.quick), player.table()


@pytest.mark.parametrize("number", RESUMED)
def test_a_sweep_that_was_made_hostile_is_taken_up_again(player: Player, number: int) -> None:
    """With a cell left to run, whose processes are real."""
    finished = player.codes[RESUMING][0]
    player.play(3600.0, first=number, most=1 + player.num_rounds)
    assert player.faults == {}, player.table()
    assert player.codes[RESUMING][0] == finished + 1


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import shutil, os; shutil.rmtree(os.environ['HOME'] + '/precious/sub')", "photo.jpg: is gone"),
        ("import os; open(os.environ['HOME'] + '/new', 'w')", "new: is new"),
        ("import os; os.utime(os.environ['HOME'] + '/notes.txt')", "notes.txt: was changed"),
        ("import os; os.chmod(os.environ['TMPDIR'] + '/rlb-aaaaaaaa', 0o777)", "rlb-aaaaaaaa: was changed"),
        ("import os; os.mkdir(os.environ['TMPDIR'] + '/rlb-left')", "rlb-left: is new"),
        ("import os; os.rmdir(os.environ['HOME'] + '/precious/empty')", "precious/empty: is gone"),
        ("import os; os.unlink('MARK-b')", "-b: is gone"),
        ("raise RuntimeError(7)", "RuntimeError: 7"),
        ("print('\\x1b]0;x')", "x1b]0;x"),
        ("import subprocess; subprocess.Popen(['sleep', '600'])", "sleep 600"),
        ("import sys; print('one', file=sys.stderr); print('two', file=sys.stderr); sys.exit(2)", "two"),
        ("import os; os.abort()", "exit code -6"),
        ("import time; time.sleep(600)", "hangs"),
    ],
)
def test_harm_is_seen(tmp_path: Path, bystander: Bystander, forks: Forks, code: str, said: str) -> None:
    """Each kind of harm is a fault."""
    place = Place(tmp_path / "place", bystander.mark)
    place.make()
    before = place.look()
    limit_s = 3.0 if said == "hangs" else QUICK_S
    code = code.replace("MARK", f"{SHM}/{bystander.mark}")
    ended = forks.run([EXECUTE, code], place.here, place.variables(), limit_s)
    found = [what for _, what in printed("", ended)]
    found += changes(before, place.look())
    assert any(said in what for what in found), (ended, found)


def test_a_process_that_is_ended_is_missed(bystander: Bystander, forks: Forks, tmp_path: Path) -> None:
    """And another one takes its place."""
    forks.run([EXECUTE, f"import os; os.kill({bystander.pid}, 9)"], tmp_path, {}, QUICK_S)
    wait_until(lambda: not bystander.lives, "it has ended")
    bystander.again()
    assert bystander.lives


@pytest.fixture(scope="module")
def bystander(shm_prefix: str) -> Iterator[Bystander]:
    """A process of the user's."""
    with Bystander(f"{shm_prefix}-canary") as made:
        yield made


@pytest.fixture(scope="module")
def forks(player: Player) -> Forks:
    """What runs commands."""
    return player._forks
