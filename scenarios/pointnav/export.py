"""Floor plans as .glb files for habitat-sim and every other reader of glTF 2.0. Needs the extra `scenes` (trimesh).

glTF's y is up: plan (x, y) becomes (x, height, -y), the floor's surface is at height 0, and seen from above the scene
is the plan. There is no ceiling: its upper side would be navigable, and larger than the floor.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from rlbench.scenarios.pointnav.depth import CEILING_M
from rlbench.scenarios.pointnav.plan import Box, FloorPlan, PlanSettings, generate_plan
from rlbench.scenarios.pointnav.workload import SMALL_SIDE, check_workload, rooms_per_side

FLOOR_M = 0.1
LARGEST_SIDE = 12
"""Most rooms per side of an exported plan: loading one computes its navmesh."""


def scene_names(count: int, seed: int, workload: str) -> list[str]:
    """The file names of `export_scenes`; they say the seed, the number and the rooms."""
    return [f"plan-s{seed}-{index:03d}-{side}x{side}.glb" for index, side in enumerate(_sides(count, workload))]


def export_scenes(folder: Path | str, count: int, seed: int, workload: str, *, keep: bool = False) -> list[Path]:
    """Writes floor plans as .glb files; the same arguments give the same scenes.

    Args:
        folder: made when it is missing.
        count: scenes to write, at least 1.
        seed: of the plans, at least 0.
        workload: `homogeneous`: 2x2 rooms each; `heterogeneous`: from 2x2 to 12x12 rooms, log-spaced.
        keep: leaves files that exist as they are.

    Returns:
        The paths, in ascending size.

    Raises:
        ValueError: a bad argument, a folder that cannot be written, or trimesh is missing.
    """
    check_workload(workload)
    for name, value, least in (("count", count, 1), ("seed", seed, 0)):
        if value < least:
            raise ValueError(f"{name}={value}: must be at least {least}")
    folder = Path(folder)
    paths = [folder / name for name in scene_names(count, seed, workload)]
    for index, (path, side) in enumerate(zip(paths, _sides(count, workload), strict=True)):
        if keep and path.exists():
            continue
        plan = plan_of_scene(seed, index, side)
        data = glb_of(plan)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _write_atomically(path, data)
        except OSError as error:
            raise ValueError(f"{path}: cannot be written ({error.strerror}); choose another folder") from error
    return paths


def plan_of_scene(seed: int, index: int, side: int) -> FloorPlan:
    """The floor plan of scene `index`."""
    return generate_plan(PlanSettings(num_columns=side, num_rows=side), np.random.default_rng((seed, index)))


def glb_of(plan: FloorPlan) -> bytes:
    """A floor plan as a binary glTF file: a box for the floor and for each stretch of wall, with vertex colours."""
    trimesh = _trimesh()
    half = plan.settings.wall_m / 2
    floor = (plan.xs[0] - half, plan.xs[-1] + half, plan.ys[0] - half, plan.ys[-1] + half)
    parts = [_solid(trimesh, floor, -FLOOR_M, 0.0, (150, 111, 51, 255))]
    for index, wall in enumerate(plan.walls()):
        shade = 150 + 37 * index % 100  # neighbouring walls differ, for colour cameras
        parts.append(_solid(trimesh, wall, 0.0, CEILING_M, (shade, shade, 255 - shade // 2, 255)))
    data: bytes = trimesh.util.concatenate(parts).export(file_type="glb")
    return data


def _solid(trimesh: Any, box: Box, bottom: float, top: float, colour: tuple[int, int, int, int]) -> Any:
    x0, x1, y0, y1 = box
    mesh = trimesh.creation.box(bounds=[[x0, bottom, -y1], [x1, top, -y0]])
    mesh.visual.vertex_colors = np.tile(np.array(colour, dtype=np.uint8), (len(mesh.vertices), 1))
    return mesh


def _sides(count: int, workload: str) -> list[int]:
    if workload == "homogeneous":
        return [SMALL_SIDE] * count
    return [rooms_per_side(index / max(count - 1, 1), LARGEST_SIDE) for index in range(count)]


def _write_atomically(path: Path, data: bytes) -> None:
    """Writes a scene whole or not at all: other processes may be exporting the same scenes."""
    handle, partial = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(partial).replace(path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def _trimesh() -> Any:
    try:
        import trimesh
    except ImportError:
        raise ValueError(
            "trimesh: not installed, and needed to write .glb scenes; pip install 'rlbench[scenes]'"
        ) from None
    return trimesh
