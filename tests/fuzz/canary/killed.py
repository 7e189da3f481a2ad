"""Makes what killed runs have left hostile: it says what is to be removed when a sweep is taken up again.

Forms of earlier versions are among it: whoever hands a folder over chooses its form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlbench.harness.run.sweep import PLAN_FILE
from rlbench.results.records.store import PARTIAL_PREFIX
from tests.fuzz.canary.hostile import Scene, is_small, put, remove

BEFORE = "shared-memory.json"


def _partials(scene: Scene) -> Iterator[Path]:
    for sweep in scene.sweeps():
        yield from (
            path for path in sorted(sweep.glob(f"{PARTIAL_PREFIX}*")) if path.is_dir() and not path.is_symlink()
        )


def _partial(scene: Scene) -> Path | None:
    """The folder of a killed run, made if there is none."""
    there = list(_partials(scene))
    if there and scene.draws.random() < 0.5:
        return scene.pick(there)
    sweeps = scene.sweeps()
    if not sweeps:
        return None
    path = scene.pick(sweeps) / f"{PARTIAL_PREFIX}{scene.pick(('001', '002'))}-planted"
    path.mkdir(exist_ok=True)
    return path


def plant_scratch_link(scene: Scene) -> str:
    """The link to temporary files that killed runs left once."""
    partial = _partial(scene)
    if partial is None:
        return "nothing"
    remove(partial / "tmp")
    target = scene.pick(scene.place.folders())
    (partial / "tmp").symlink_to(target)
    return f"{partial}: its tmp is a link to {target}"


def plant_scratch_name(scene: Scene) -> str:
    """The name of temporary files; the secret that should be there as well is guessed, or is a file of the user's."""
    partial = _partial(scene)
    if partial is None:
        return "nothing"
    remove(partial / "scratch.json")
    name = scene.pick(
        (
            "rlb-aaaaaaaa",
            "rlb-bbbbbbbb",
            "rlb-node-cccccccc",
            "../home",
            "../home/precious",
            "",
            ".",
            "file",
            "rlb-planted",
        )
    )
    told = {"name": name, "secret": scene.pick(("", "0" * 32, "x", "../../file"))}
    if name == "rlb-planted":  # a link with our prefix, in the temporary folder
        remove(scene.place.tmp / name)
        (scene.place.tmp / name).symlink_to(scene.pick(scene.place.folders()))
    (partial / "scratch.json").write_text(json.dumps(told))
    return f"{partial}/scratch.json: {told}"


def plant_shared_memory(scene: Scene) -> str:
    """Names in /dev/shm of which a killed run says that they are its own."""
    partial = _partial(scene)
    if partial is None:
        return "nothing"
    names = [*scene.place.shm_names(), *map(str, scene.place.files()[:2])]
    (partial / "shm-rank0.txt").write_text("\n".join(names) + "\n")
    folder = partial / "tmp"
    remove(folder)
    folder.mkdir()
    said: Mapping[str, Any] = {"inodes": {}, "patterns": [f"{scene.place.mark}*", scene.place.mark + "-a"]}
    (folder / BEFORE).write_text(json.dumps(said))
    if scene.draws.random() < 0.5:  # where the link of a killed run would lead
        away = partial.parent / "away"
        remove(away)
        folder.rename(away)
        folder.symlink_to(away)
    return f"{partial}: names of shared memory"


def plant_leftovers(scene: Scene) -> str:
    """Links in the place of files that are written or removed when a run is taken up again."""
    sweeps = scene.sweeps()
    if not sweeps:
        return "nothing"
    sweep = scene.pick(sweeps)
    names = [
        ".cell-001.lock",
        ".cell-002.lock",
        "jobs.json",
        "slurm",
        f"{PARTIAL_PREFIX}001-x",
        f"{PARTIAL_PREFIX}002",
        PLAN_FILE,
    ]
    return put(scene, sweep / scene.pick(names))


def plant_next_names(scene: Scene) -> str:
    """Names under which the next processes write what they then rename."""
    last = int(Path("/proc/sys/kernel/ns_last_pid").read_text())
    names = ("rlbench-report.html", "rlbench-history.jsonl", "jobs.json", PLAN_FILE, "out.html")
    folder, name = scene.pick([scene.place.here, *scene.sweeps()]), scene.pick(names)
    file = scene.pick(scene.place.files())
    for pid in range(last + 1, last + 60):
        path = folder / f"{PARTIAL_PREFIX}{pid}-{name}"
        if not path.exists() and not path.is_symlink():
            path.symlink_to(file)
    return f"{folder}/{PARTIAL_PREFIX}PID-{name}: links to {file}"


def change_pids(scene: Scene) -> str:
    """Numbers of processes in the counters of a killed run, of which one is the user's."""
    path = scene.victim("meter-*.bin")
    if path is None or not is_small(path):
        return "nothing"
    words = np.fromfile(path, np.int64)
    if words.size < 8:
        return "nothing"
    words[4:] = np.where(scene.draws.random(words.size - 4) < 0.5, scene.pid, words[4:])
    words.tofile(path)
    return f"{path}: says {scene.pid}"


CHANGES: tuple[Callable[[Scene], str], ...] = (
    *(plant_scratch_link, plant_scratch_link, plant_scratch_name, plant_shared_memory, plant_shared_memory),
    *(plant_leftovers, plant_leftovers, plant_next_names, change_pids),
)
