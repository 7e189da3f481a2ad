import builtins
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trimesh

from rlbench.scenarios.pointnav.depth import CEILING_M
from rlbench.scenarios.pointnav.export import FLOOR_M, export_scenes, plan_of_scene, scene_names
from rlbench.scenarios.pointnav.plan import FloorPlan


def read(path: Path) -> Any:
    """All of a .glb as one mesh."""
    return trimesh.load(path, force="mesh")


def covered(mesh: Any, x: float, y: float, height: float) -> bool:
    """Whether a point (seen from above, and its height) is within one of the mesh's boxes."""
    return any(
        (part[0] <= (x, height, -y)).all() and ((x, height, -y) <= part[1]).all()
        for part in (np.array([body.min(axis=0), body.max(axis=0)]) for body in mesh.triangles.reshape(-1, 36, 3))
    )


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[FloorPlan, Any]:
    """A floor plan, and the mesh of its file as trimesh reads it back."""
    (path,) = export_scenes(tmp_path_factory.mktemp("scenes"), 1, 7, "homogeneous")
    return plan_of_scene(7, 0, 2), read(path)


def test_bounds_are_the_plans_and_the_floor_is_at_zero(exported: tuple[FloorPlan, Any]) -> None:
    """Up is y: the floor's surface is at 0, walls end at the ceiling's height, x and -z are the plan's x and y."""
    plan, mesh = exported
    half = plan.settings.wall_m / 2
    low, high = mesh.bounds
    assert low == pytest.approx((plan.xs[0] - half, -FLOOR_M, -plan.ys[-1] - half), abs=1e-5)
    assert high == pytest.approx((plan.xs[-1] + half, CEILING_M, -plan.ys[0] + half), abs=1e-5)
    up = mesh.triangles_center[mesh.face_normals[:, 1] > 0.9]
    assert set(np.round(up[:, 1], 5)) == {0.0, CEILING_M}  # the floor's surface and the tops of walls: no ceiling


def test_every_wall_of_the_plan_is_solid_and_every_door_open(exported: tuple[FloorPlan, Any]) -> None:
    """In the middle of each wall there is geometry at the height of the camera, in the middle of each door none."""
    plan, mesh = exported
    for x0, x1, y0, y1 in plan.walls():
        assert covered(mesh, (x0 + x1) / 2, (y0 + y1) / 2, 1.25)
    assert plan.doors
    for door in plan.doors:
        line = plan.xs[door.column + 1] if door.axis == 0 else plan.ys[door.row + 1]
        for share in (-0.45, 0.0, 0.45):
            along = door.centre_m + share * plan.settings.door_m
            x, y = (line, along) if door.axis == 0 else (along, line)
            assert not any(covered(mesh, x, y, height) for height in (0.05, 1.25, 2.4))
            assert covered(mesh, x, y, -0.05)  # there is floor to walk on


def test_boxes_are_closed_and_coloured(exported: tuple[FloorPlan, Any]) -> None:
    """One box for the floor and one for each stretch of wall, faces outwards, with vertex colours."""
    plan, mesh = exported
    assert len(mesh.faces) == 12 * (1 + len(plan.walls()))
    outwards = (mesh.face_normals * (mesh.triangles_center - np.repeat(centres(mesh), 12, axis=0))).sum(axis=1)
    assert (outwards > 0).all()
    assert mesh.visual.kind == "vertex"
    assert len({tuple(colour) for colour in mesh.visual.vertex_colors.tolist()}) > 3


def centres(mesh: Any) -> Any:
    """The middle of each box: [boxes, 3]."""
    return mesh.triangles.reshape(-1, 36, 3).mean(axis=1)


def test_heterogeneous_scenes_grow_from_2x2_to_12x12(tmp_path: Path) -> None:
    """Sizes are log-spaced, the names say them, and files grow with the rooms."""
    paths = export_scenes(tmp_path, 5, 0, "heterogeneous")
    sides = [int(re.findall(r"(\d+)x", path.name)[0]) for path in paths]
    assert sides == [2, 3, 5, 8, 12]
    sizes = [path.stat().st_size for path in paths]
    assert sizes == sorted(sizes)
    assert sizes[-1] > 8 * sizes[0]
    assert sorted(tmp_path.iterdir()) == sorted(paths)


def test_same_seed_same_files(tmp_path: Path) -> None:
    """The same arguments write the same bytes, another seed others; `keep` leaves what is there."""
    first = export_scenes(tmp_path / "a", 2, 1, "homogeneous")
    second = export_scenes(tmp_path / "b", 2, 1, "homogeneous")
    other = export_scenes(tmp_path / "c", 2, 2, "homogeneous")
    assert [path.name for path in first] == scene_names(2, 1, "homogeneous")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert first[0].read_bytes() != first[1].read_bytes() != other[1].read_bytes()
    first[0].write_bytes(b"mine")
    export_scenes(tmp_path / "a", 2, 1, "homogeneous", keep=True)
    assert first[0].read_bytes() == b"mine"
    export_scenes(tmp_path / "a", 2, 1, "homogeneous")
    assert first[0].read_bytes() == second[0].read_bytes()


def test_without_trimesh_the_error_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is optional: one line says what to install, and nothing is written."""
    real_import = builtins.__import__

    def import_without_trimesh(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "trimesh":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", import_without_trimesh)
    with pytest.raises(ValueError, match=re.escape("pip install 'rlbench[scenes]'")):
        export_scenes(tmp_path, 1, 0, "homogeneous")
    assert not list(tmp_path.iterdir())


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    """Count, seed, workload and a folder that is a file are named with their values."""
    with pytest.raises(ValueError, match="count=0: must be at least 1"):
        export_scenes(tmp_path, 0, 0, "homogeneous")
    with pytest.raises(ValueError, match="seed=-1: must be at least 0"):
        export_scenes(tmp_path, 1, -1, "homogeneous")
    with pytest.raises(ValueError, match="workload=odd: unknown"):
        export_scenes(tmp_path, 1, 0, "odd")
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"file/plan-s0-000-2x2\.glb: cannot be written"):
        export_scenes(tmp_path / "file", 1, 0, "homogeneous")
