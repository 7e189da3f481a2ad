from __future__ import annotations

import fcntl
import os
import shutil
import sysconfig
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rlbench.harness.machine import virtualenvs
from rlbench.harness.machine.virtualenvs import READY, open_lock
from rlbench.harness.plan import libraries
from tests.harness.command import assert_refused, call
from tests.harness.plan.copied_environments import copied_environments


@dataclass(frozen=True)
class Tiny:
    """A library that pip installs from a folder, without a network."""

    folder: Path
    name: str = "tiny"
    distribution: str = "tiny"
    after: str = ""
    """What must be in its environment before pip."""

    @property
    def requirements(self) -> Path:
        """Of one version."""
        return self.folder / "requirements.txt"

    def unavailable(self, place: Path) -> str | None:
        """Pip can, where nothing else must be there first."""
        return None if not self.after or (place / self.after).exists() else f"{self.after} is missing; use: conda"

    def need(self, version: str) -> None:
        """Writes the requirements."""
        self.requirements.write_text(f"# tiny\n--no-index\n--find-links {self.folder}\ntiny=={version}\n")

    def publish(self, version: str) -> None:
        """Makes a wheel."""
        about = f"tiny-{version}.dist-info"
        with zipfile.ZipFile(self.folder / f"tiny-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr("tiny.py", f"VERSION = {version!r}\n")
            wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n")
            wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{about}/RECORD", f"tiny.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n")


@dataclass(frozen=True)
class OfTiny:
    """A system that needs it."""

    library: Tiny


@pytest.fixture(scope="module", autouse=True)
def environments_made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """The second environment, and those after it, take no time."""
    with copied_environments(tmp_path_factory.mktemp("environments")) as made:
        yield made


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """The library in version 1.0, not installed, with a cache folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    library = Tiny(folder=tmp_path)
    for version in ("1.0", "2.0"):
        library.publish(version)
    library.need("1.0")
    return library


def test_a_library_is_installed_used_brought_up_and_removed(tiny: Tiny) -> None:
    """Its environment says at each moment whether it can be used, with the command that changes that."""
    said: list[str] = []
    system = OfTiny(tiny)
    assert libraries.why_not(tiny) == "tiny is not installed; use: rlbench systems install tiny"
    with pytest.raises(ValueError, match="tiny is not installed"):
        libraries.python_of(system)

    libraries.install(tiny, said.append)
    assert libraries.why_not(tiny) is None
    assert said[-1] == "tiny: tiny 1.0 is installed"
    assert libraries.packages_of(system)["tiny"] == "1.0"
    libraries.install(tiny, said.append)
    assert said[-1] == "tiny: tiny 1.0 is installed"
    assert len(said) == 3  # the second time nothing was to be done

    tiny.need("2.0")
    assert libraries.why_not(tiny) == (
        "its environment has tiny 1.0 where 2.0 is needed; use: rlbench systems install tiny"
    )
    libraries.install(tiny, said.append)
    assert libraries.packages_of(system)["tiny"] == "2.0"

    place = libraries.environment_of(tiny)
    lock = open_lock(place)
    fcntl.flock(lock, fcntl.LOCK_SH)  # as a run holds it
    try:
        tiny.need("1.0")
        for change in (libraries.install, libraries.remove):
            with pytest.raises(ValueError, match=r"is used by a run, or is being installed; wait for its end"):
                change(tiny, said.append)
    finally:
        os.close(lock)
    lock = open_lock(place)
    fcntl.flock(lock, fcntl.LOCK_EX)  # as `install` holds it
    try:
        with pytest.raises(ValueError, match=r"is being installed or removed; wait for its end"):
            libraries.python_of(system)
    finally:
        os.close(lock)

    libraries.remove(tiny, said.append)
    assert not place.exists()
    libraries.remove(tiny, said.append)
    assert said[-2:] == ["tiny: removed", "tiny: is not installed"]


def test_what_pip_cannot_make_is_waited_for(tiny: Tiny) -> None:
    """Without it nothing is made or removed; with it pip adds the rest to the environment that is there."""
    library = replace(tiny, after="theirs")
    place = libraries.environment_of(library)
    assert libraries.why_not(library) == "theirs is missing; use: conda"
    with pytest.raises(ValueError, match=r"^tiny: theirs is missing; use: conda$"):
        libraries.install(library, lambda _: None)
    assert not place.exists()

    virtualenvs.make(place, "theirs")
    (place / "theirs").touch()
    assert libraries.why_not(library) == "tiny is not installed; use: rlbench systems install tiny"
    libraries.install(library, lambda _: None)
    assert libraries.why_not(library) is None
    assert (place / "theirs").exists()


def test_what_pip_says_is_passed_on(tiny: Tiny) -> None:
    """In one line, and the environment is not taken for a whole one; nor is one whose Python is gone."""
    tiny.need("3.0")
    with pytest.raises(ValueError, match=r"^tiny: pip: ERROR: Could not find a version that satisfies .*tiny==3\.0"):
        libraries.install(tiny, lambda _: None)
    place = libraries.environment_of(tiny)
    assert not (place / READY).exists()
    assert libraries.why_not(tiny) is not None
    tiny.need("1.0")
    libraries.install(tiny, lambda _: None)
    assert libraries.why_not(tiny) is None
    shutil.rmtree(place / "bin")
    assert libraries.why_not(tiny) is not None


def test_what_the_command_line_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system whose library is not there is refused with the command; so is an unknown library."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    ended = call("run", "--systems", "sync,sb3-ppo", "--scenario", "vizdoom", "--device", "cpu", "--out", "runs")
    assert_refused(ended, "sb3-ppo: stable-baselines3 is not installed; use: rlbench systems install sb3")
    assert not list(tmp_path.glob("runs/*"))
    known = "habitat-baselines, rllib, sample-factory, sb3, torchrl"
    assert_refused(call("systems", "install", "sb4"), f"sb4: unknown; did you mean 'sb3'? known: {known}")
    assert call("systems", "remove", "sb3-ppo").out == "sb3: is not installed\n"  # by the name of a system too
    assert "sb3-ppo" in call("list", "systems").out
    assert "use: rlbench systems install sample-factory" in call("list", "systems", "--json").out


def test_what_needs_habitat_sim_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line with the command, whatever is asked for; `all` leaves it out."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    library = libraries.all_libraries()["habitat-baselines"]
    place = libraries.environment_of(library)
    why = library.unavailable(place)
    python = sysconfig.get_python_version()
    assert why == (
        f"habitat-sim is not installed, and pip cannot install it; use: conda create --prefix {place} python={python} "
        "pip habitat-sim headless -c conda-forge -c aihabitat-nightly && rlbench systems install habitat-baselines"
    )
    ended = call("run", "--systems", "habitat-ver", "--scenario", "pointnav:policy=resnet", "--device", "cpu")
    assert_refused(ended, f"habitat-ver: {why}")
    assert_refused(call("systems", "install", "habitat-ddppo"), f"habitat-baselines: {why}")
    assert [one.name for one in libraries.find(["all"])] == ["rllib", "sample-factory", "sb3", "torchrl"]

    (place / "lib" / f"python{python}" / "site-packages" / "habitat_sim").mkdir(parents=True)
    assert library.unavailable(place) is None
    assert libraries.why_not(library) == (
        "habitat-baselines is not installed; use: rlbench systems install habitat-baselines"
    )
