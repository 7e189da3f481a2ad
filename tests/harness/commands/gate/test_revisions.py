"""Environments of revisions: what they have of their own, and what they import from here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from rlbench.harness.commands.gate import revisions
from rlbench.harness.commands.gate.revisions import checked_out, find_commit
from tests.harness.commands.gate.conftest import Shared
from tests.harness.commands.gate.toy_repository import commit


def test_code_without_a_command_of_its_own_runs_in_ours(repository: Path, tmp_path: Path) -> None:
    """The package is that of the revision; rlbench and all else are those of this environment."""
    backend = repository / "backend.py"
    backend.write_text(backend.read_text().replace("[console_scripts]\\nrlbench = toy:main\\n", ""))
    commit(repository, "package", 100.0)
    with checked_out("package", find_commit("package", repository), repository, tmp_path) as built:
        asked = "import numpy, toy; print(toy.__file__, numpy.__file__, sep='\\n')"
        python = built.environment / "bin" / "python"
        found = subprocess.run([python, "-P", "-c", asked], check=True, capture_output=True, text=True)
        toy, numpy = map(Path, found.stdout.split())
        assert toy.is_relative_to(built.environment)
        assert numpy == Path(np.__file__)
        helped = subprocess.run([*built.rlbench, "run", "--help"], check=False, capture_output=True, text=True)
        assert helped.returncode == 0, helped.stderr
        assert "--protocol" in helped.stdout


def test_an_environment_is_of_what_is_installed_here(
    repository: Path, shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another package here, and the revision gets another environment; the same again, and it is kept."""
    name = find_commit("main", repository)
    made = []
    for added in (False, True, False):
        if added:
            info = tmp_path / "site-packages" / "another-1.0.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text("Metadata-Version: 2.1\nName: another\nVersion: 1.0\n")
        with monkeypatch.context() as patched:
            patched.syspath_prepend(*([tmp_path / "site-packages"] if added else [tmp_path]))
            with checked_out("main", name, repository, tmp_path) as built:
                made.append(built.environment)
    assert made[0] == made[2] != made[1]
    assert sorted(shared.made).count(made[0]) == 1
    assert revisions.NAME.fullmatch(made[0].name)
