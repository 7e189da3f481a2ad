"""Makes a working folder and a cache hostile: links where commands write, a repository that runs programs."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Callable
from pathlib import Path

from tests.fuzz import samples
from tests.fuzz.canary.hostile import Scene, put, remove

LIBRARIES = ("sb3", "rllib", "sample-factory", "torchrl")
OUTPUTS = (
    *("rlbench-report.html", "rlbench-history.jsonl", "emulated-open-fridge.toml", "pointnav.toml", "gate.json"),
    *("gate.xml", "gate.md", "out.html", "runs.csv", "runs.json", "runs.parquet", "runs.md", "trace.json", "out.toml"),
    "profile.toml",
)
"""What commands write in the working folder, by default or as this fuzzer names it."""


def plant_output(scene: Scene) -> str:
    """Something hostile where a command writes."""
    return put(scene, scene.place.here / scene.pick(OUTPUTS))


def plant_partial_output(scene: Scene) -> str:
    """A link where a scene is written, in a folder that is there."""
    folder = scene.place.here / "scenes"
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        return "nothing"
    folder.mkdir(exist_ok=True)
    return put(scene, folder / scene.pick(("plan-s0-000-2x2.glb", "plan-s0-000-2x2.glb.part")))


def plant_folder(scene: Scene) -> str:
    """Something hostile in the place of a folder that is written to."""
    return put(scene, scene.place.here / scene.pick(("rlbench-runs", "scenes")), is_named=True)


def spoil_repository(scene: Scene) -> str:
    """Its configuration and hooks run a program."""
    git = scene.place.here / ".git"
    if not (git / "config").is_file():
        return "nothing"
    program = git / "program"
    program.write_text(f"#!/bin/sh\ntouch {scene.place.pwned}\n")
    program.chmod(0o755)
    for name in ("post-checkout", "pre-commit", "post-index-change", "fsmonitor-watchman"):
        (git / "hooks").mkdir(exist_ok=True)
        remove(git / "hooks" / name)
        shutil.copy(program, git / "hooks" / name)
    told = scene.pick(
        (
            f"[core]\n\tfsmonitor = {program}\n",
            f"[core]\n\thooksPath = {git}/hooks\n",
            f'[filter "x"]\n\tclean = {program}\n\tsmudge = {program}\n\tprocess = {program}\n\trequired = true\n',
            f"[core]\n\tpager = {program}\n\tsshCommand = {program}\n\tgitProxy = {program}\n",
            f"[include]\n\tpath = {scene.place.files()[0]}\n",
            f"[core]\n\tworktree = {scene.place.home}\n",
        )
    )
    with (git / "config").open("a") as file:
        file.write(told)
    (scene.place.here / ".gitattributes").write_text("* filter=x\n")
    os.utime(scene.place.here / "README", (1, 1))  # it is to be looked at again
    return f"{git}/config: {told!r}"


def plant_modules(scene: Scene) -> str:
    """Modules of the working folder with names that Python looks for."""
    names = ("sitecustomize", "torch", "numpy", "harness", "json", "usercustomize", "psutil")
    for name in names:
        path = scene.place.here / f"{name}.py"
        remove(path)
        path.write_text(f"open({str(scene.place.pwned)!r}, 'w')\n")
    return f"{scene.place.here}: modules"


def plant_profile(scene: Scene) -> str:
    """A profile and a history, one of which is hostile."""
    here = scene.place.here
    for name, data in (("profile.toml", samples.profile().encode()), ("rlbench-history.jsonl", samples.history())):
        path = here / name
        if scene.draws.random() < 0.7 and not path.is_symlink() and not path.exists():
            path.write_bytes(data)
            if scene.draws.random() < 0.3:
                path.write_bytes(data.replace(b"open-fridge", str(scene.text()).encode("utf-8", "replace")))
    return "a profile and a history"


def link_cache(scene: Scene) -> str:
    """Links to what is the user's where environments are kept."""
    cache = scene.place.cache / "rlbench"
    library = f"{scene.pick(LIBRARIES)}-{sysconfig.get_platform()}-python{sysconfig.get_python_version()}"
    target = scene.pick((scene.place.home / "environment", scene.place.home / "precious"))
    path = scene.pick((cache / "systems" / library, cache / "systems" / f"{library}.lock", cache / "gate" / ("0" * 40)))
    remove(path)
    path.symlink_to(scene.place.home / "precious/data.bin" if path.suffix == ".lock" else target)
    return f"{path}: a link to {path.readlink()}"


def make_here(here: Path, repository: Path, out: Path) -> None:
    """The working folder before it is made hostile."""
    shutil.rmtree(here)
    shutil.copytree(repository, here, symlinks=True)
    (here / "rlbench-runs").symlink_to(out)


CHANGES: tuple[Callable[[Scene], str], ...] = (
    *(plant_output, plant_output, plant_output, plant_partial_output, plant_folder, spoil_repository, plant_modules),
    *(plant_profile, plant_profile, link_cache),
)
