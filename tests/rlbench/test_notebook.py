"""The notebook in examples/, run in a kernel as a notebook is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "notebook.ipynb"
EXECUTE = """
import sys

import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
nbformat.write(notebook, "executed.ipynb")
"""
Cells = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where it was executed; nothing of the kernel's is kept elsewhere."""
    folder = tmp_path_factory.mktemp("notebook")
    own = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    variables = {name: str(folder / "jupyter" / name) for name in own}
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, str(EXAMPLE)],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def cells_of(path: Path) -> Cells:
    """The cells of code by their ids."""
    return {cell["id"]: cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"}


def shown(cell: dict[str, Any], kind: str) -> str:
    """What a cell shows in one form: `text/html`, or `stdout`."""
    outputs = [output for output in cell["outputs"] if kind in output.get("data", {}) or output.get("name") == kind]
    return "".join("".join(output["data"][kind] if "data" in output else output["text"]) for output in outputs)


def test_it_runs_from_top_to_bottom(folder: Path) -> None:
    """It predicts, measures and reports; both results show themselves, with what they are not."""
    cells = cells_of(folder / "executed.ipynb")
    assert "64 (predicted)" in shown(cells["predicted"], "text/html")
    assert "simulated by a model of the profile (not measured)" in shown(cells["predicted"], "text/html")
    assert "2 (emulated)" in shown(cells["run"], "text/html")
    assert shown(cells["comparisons"], "text/html").count("<tr") == 3
    assert "rlbench-report.html" in shown(cells["page"], "text/html")
    assert len(list(folder.glob("rlbench-runs/*/*/run.json"))) == 9 + 4
    assert (folder / "rlbench-report.html").stat().st_size > 500_000


def test_progress_is_plain_output(folder: Path) -> None:
    """What a command says stands below the cell, line by line, and not as an error; the table stands there once."""
    cells = cells_of(folder / "executed.ipynb")
    said = shown(cells["run"], "stdout")
    assert "[4/4] ver emulated/open-fridge:num_envs=4:rollout_steps=16:time_scale=0.05 homogeneous x2" in said
    assert "\x1b" not in said
    assert "steps/s, 95 %" not in said
    outputs = [(name, output) for name, cell in cells.items() for output in cell["outputs"]]
    assert [(name, out) for name, out in outputs if out["output_type"] == "error" or out.get("name") == "stderr"] == []


def test_it_is_kept_without_outputs() -> None:
    """A change of it shows what was written, not what a machine measured."""
    for cell in cells_of(EXAMPLE).values():
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
