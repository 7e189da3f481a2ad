"""A copy of the repository, with an environment whose `rlbench` is the copy's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from tests.mutations.change import ROOT

PACKAGES = (
    *("rlbench.harness", "rlbench.systems", "rlbench.scenarios", "rlbench.results", "rlbench.reports"),
    "rlbench",
    "rlbench_start",
    "rlbench_client",
    "tests",
)


class Copy:
    """The tracked files as they are now in the working tree, in `folder`, and a Python that imports them."""

    def __init__(self, folder: Path) -> None:
        """`folder` is empty; raises AssertionError where anything but the copy would be imported."""
        self.root, self._folder = folder / "copy", folder
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
        for name in os.fsdecode(listed.stdout).split("\0"):
            if name and (ROOT / name).is_file():  # one that was removed is tracked until that is committed
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
            elif name and (ROOT / name).is_symlink():  # to a folder
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                (self.root / name).symlink_to((ROOT / name).readlink())
        self._make_environment()
        self._check()

    def _make_environment(self) -> None:
        """A venv that finds the copy first, then what is installed where this runs, but for this repository."""
        made = self._folder / "venv"
        venv.create(made, symlinks=True, with_pip=False)
        self.python = made / "bin" / "python"
        (site,) = made.glob("lib/python*/site-packages")
        others = [path for path in sys.path if "-packages" in path and Path(path).resolve() != ROOT]
        (site / "copy.pth").write_text("".join(f"{path}\n" for path in (self.root, *others)), encoding="utf-8")
        for script in Path(sys.executable).parent.iterdir():
            there = made / "bin" / script.name
            if there.exists() or there.is_symlink() or not script.is_file():
                continue
            content = script.read_bytes()
            if content.startswith(b"#!"):
                first, _, rest = content.partition(b"\n")
                there.write_bytes((f"#!{self.python}".encode() if b"python" in first else first) + b"\n" + rest)
                there.chmod(0o755)
            else:
                there.symlink_to(script)

    def _check(self) -> None:
        code = "import importlib, sys; print(*(importlib.import_module(name).__file__ for name in sys.argv[1:]))"
        for command in ([self.python, "-P"], [self._interpreter_of("rlbench"), "-P"]):
            done = subprocess.run(
                [*command, "-c", code, *PACKAGES], cwd=self._folder, capture_output=True, text=True, check=True
            )
            strangers = [path for path in done.stdout.split() if not Path(path).is_relative_to(self.root)]
            assert not strangers, f"{strangers}: not of the copy {self.root}"

    def _interpreter_of(self, script: str) -> str:
        first, _, _ = self.python.with_name(script).read_text(encoding="utf-8").partition("\n")
        return first.removeprefix("#!")

    def test(self, names: list[str], jobs: int) -> tuple[str | None, str]:
        """Runs tests of the lane of every change until one fails; returns that one, if any, and what pytest said.

        Raises AssertionError where pytest ends otherwise.
        """
        is_one = len(names) == 1 and ".py" in names[0]
        beside = [] if jobs == 1 or is_one else ["-n", str(jobs), "--dist", "loadfile", "--no-loadscope-reorder"]
        failed = self._folder / "cache" / "v" / "cache" / "lastfailed"
        failed.unlink(missing_ok=True)
        options = ["-q", "-x", "-o", f"cache_dir={self._folder / 'cache'}", "--basetemp", str(self._folder / "t")]
        done = subprocess.run(
            [self.python, "-m", "pytest", *options, *beside, *names],
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return None, done.stdout
        first = next(iter(json.loads(failed.read_bytes())), None) if failed.exists() else None
        assert first, f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        return first, done.stdout
