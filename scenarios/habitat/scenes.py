"""Which scene an environment gets. A scene's size is that of its file: it tells how much geometry there is."""

from __future__ import annotations

import os
from pathlib import Path

from rlbench.scenarios.pointnav.export import export_scenes
from rlbench.scenarios.pointnav.workload import spread

NUM_OWN_SCENES = 8
ALIKE_FACTOR = 1.5


def find_scenes(folder: Path) -> list[Path]:
    """The .glb scenes in a folder and below it, by size; HM3D's `.semantic.glb` are annotations, not scenes.

    Raises ValueError when there are none.
    """
    if not folder.is_dir():
        raise ValueError(
            f"habitat.scenes={folder}: no such folder; give a folder of .glb scenes, or '' for our floor plans"
        )
    found = [path for path in folder.rglob("*.glb") if not path.name.endswith(".semantic.glb")]
    if not found:
        raise ValueError(f"habitat.scenes={folder}: holds no .glb scene; `rlbench scenes` writes some")
    return sorted(found, key=lambda path: (path.stat().st_size, str(path)))


def own_scenes(workload: str) -> list[Path]:
    """Our own floor plans, exported into the user's cache on first use.

    Raises ValueError when they must be exported and trimesh is missing.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "rlbench" / "scenes-1" / workload  # the number grows when the same seed gives another plan
    return export_scenes(folder, NUM_OWN_SCENES, 0, workload, keep=True)


def choose_scene(scenes: list[Path], workload: str, global_index: int) -> Path:
    """The scene of an environment, out of scenes in ascending size.

    Heterogeneous: any, by the environment's fixed share. Homogeneous: those within a factor 1.5 of the median size, in
    turn.
    """
    if workload == "heterogeneous":
        return scenes[int(spread(global_index) * len(scenes))]
    median = scenes[len(scenes) // 2].stat().st_size
    alike = [path for path in scenes if median / ALIKE_FACTOR <= path.stat().st_size <= median * ALIKE_FACTOR]
    return alike[global_index % len(alike)]
