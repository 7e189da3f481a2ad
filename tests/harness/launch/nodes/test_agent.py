from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from rlbench.harness.launch.nodes import agent
from rlbench.harness.processes.scratch import Scratch
from rlbench.harness.processes.shared_memory import Before


def test_what_killed_agents_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders whose agent lives are left alone, and so is what is no agent's, or where others may have written."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("rlb-node-dead", "rlb-node-alive", "rlb-node-strange", "rlb-other"):
        (tmp_path / name).mkdir()
    for name in ("rlb-node-dead", "rlb-node-alive", "rlb-node-open"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name).chmod(0o700)
        (tmp_path / name / agent.LOCK).touch()
    precious = tmp_path / "precious"
    precious.mkdir()
    Scratch.make(tmp_path / "rlb-node-dead", Before.now(object()))
    (tmp_path / "rlb-node-dead" / "link").symlink_to(precious)
    (precious / "kept").touch()
    (precious / agent.LOCK).touch()
    (tmp_path / "rlb-node-open").chmod(0o777)
    (tmp_path / "rlb-node-link").symlink_to(precious)
    for name, make in (("rlb-node-pipe", os.mkfifo), ("rlb-node-linked", lambda path: path.symlink_to("/dev/null"))):
        (tmp_path / name).mkdir(mode=0o700)
        make(tmp_path / name / agent.LOCK)
    held = os.open(tmp_path / "rlb-node-alive" / agent.LOCK, os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    agent.remove_stale()
    os.close(held)
    left = ["alive", "link", "linked", "open", "pipe", "strange"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "precious",
        *(f"rlb-node-{name}" for name in left),
        "rlb-other",
    ]
    assert sorted(path.name for path in precious.iterdir()) == [agent.LOCK, "kept"]


def test_code_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same code has the same name, wherever it lies; a changed line has another."""
    for package in ("harness/launch/nodes", "systems", "scenarios", "results"):
        (tmp_path / package).mkdir(parents=True)
    (tmp_path / "systems" / "a.py").write_text("x = 1\n")
    (tmp_path / "scenarios" / "a.toml").write_text("x = 1\n")
    monkeypatch.setattr(agent, "__file__", str(tmp_path / "harness" / "launch" / "nodes" / "agent.py"))
    before = agent.source_digest()
    assert before == agent.source_digest()
    for changed in ("systems/a.py", "scenarios/a.toml"):
        (tmp_path / changed).write_text("x = 2\n")
        assert agent.source_digest() != before
        (tmp_path / changed).write_text("x = 1\n")
    assert agent.describe()["source"] == agent.source_digest()
