"""A project of somebody else with packages of our folders' names, first on the path of all that it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FOLDERS = ("harness", "systems", "scenarios", "results", "reports")
CHECK = f"""
import {", ".join(FOLDERS)}

for each in ({", ".join(FOLDERS)}):
    assert each.NAME == f"their {{each.__name__}}"
"""
"""Code that fails unless these packages are theirs."""


def make_project(folder: Path) -> Path:
    """Makes the packages in a folder."""
    for name in FOLDERS:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"NAME = 'their {name}'\n", encoding="utf-8")
    return folder


def run_python(code: str, folder: Path, project: Path) -> str:
    """What a program of that project prints, which runs in a folder; the project is on its path, and first there."""
    path = os.pathsep.join(filter(None, [str(project), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
