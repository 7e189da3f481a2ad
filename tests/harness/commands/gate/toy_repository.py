"""A git repository of a toy `rlbench`, whose revisions are as fast as they say; it installs without a network."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.results.made_records import make_record

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "toy"
version = "1.0"
"""
BACKEND = """
import zipfile
from pathlib import Path

FILES = {
    "toy-1.0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: toy\\nVersion: 1.0\\n",
    "toy-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: toy\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    "toy-1.0.dist-info/entry_points.txt": "[console_scripts]\\nrlbench = toy:main\\n",
}


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = FILES | {name: Path(name).read_text() for name in ("toy.py", "toy_template.json", "toy_rate.txt")}
    record = "".join(f"{name},,\\n" for name in [*files, "toy-1.0.dist-info/RECORD"])
    name = "toy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory, name), "w") as wheel:
        for path, text in (files | {"toy-1.0.dist-info/RECORD": record}).items():
            wheel.writestr(path, text)
    return name
"""
TOY = """
import json
import os
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

HERE = Path(__file__).parent


def main():
    options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
    seed, out = int(options["--seeds"]), Path(options["--out"])
    rate, noise, what = HERE.joinpath("toy_rate.txt").read_text().split()
    if what == "refuses":
        print("rlbench: unknown system", options["--systems"], file=sys.stderr)
        sys.exit(2)
    if what == "old" and options.get("--protocol") == "still":
        print("rlbench: --protocol still: unknown; choose one of: steady", file=sys.stderr)
        sys.exit(2)
    if what == "sleeps":
        (out / "sleeping").touch()
        time.sleep(60)
    (out / f"cores-{seed}").write_text(f"{len(os.sched_getaffinity(0))} {options.get('--seconds')}")
    started = datetime.now(timezone.utc).isoformat()
    record = json.loads(HERE.joinpath("toy_template.json").read_text())
    record |= {"id": f"run-{seed}", "sweep": f"sweep-{seed}", "started_at": started}
    record["commit"] = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    record["cell"] |= {"seed": seed, "hash": f"hash-{seed}"}
    if "--seconds" in options:
        record["configuration"]["limits"] = {"seconds": options["--seconds"]}
    record["figures"]["steps_per_s"] = float(rate) * (1 + float(noise) * ((seed * 5) % 7 - 3) / 3)
    if what in {"one", "few", "stands"}:
        lasts = {"one": 15, "few": 10, "stands": 20 if seed == 1 else 5}[what]  # seconds of an iteration
        last = int(float(options["--seconds"])) // lasts - 1
        record["figures"]["window"] |= {"first_iteration": min(last, 1), "last_iteration": last}
    if what == "fails":
        record |= {"status": "failed", "reason": "rank 0 died"}
    folder = out / record["sweep"] / record["id"]
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(record))
    if "--until" in options:
        import pandas as pd

        num = round(1e5 * (1 + float(noise) * seed) / float(rate))  # as often as it is slower
        frame = pd.DataFrame({"rank": 0, "iteration": range(num), "learned": 1000, "lag": 0.0})
        frame["begin_s"], frame["end_s"] = frame.index * 1.0, frame.index + 1.0
        frame["success"] = 0.1 if what == "never" else 0.9 * (1 + frame.index) / num
        frame.to_parquet(folder / "series.parquet")
    with open(out.parent / "order.txt", "a") as order:
        order.write(f"{out.name} {seed} {options.get('--protocol', '')}".strip() + "\\n")
    sys.exit(1 if what == "fails" else 0)
"""


def git(folder: Path, *arguments: str) -> str:
    """What git printed."""
    identity = ("-c", "user.name=toy", "-c", "user.email=toy@localhost")
    done = subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(folder: Path, branch: str, rate: float, noise: float = 0.003, what: str = "runs") -> None:
    """A branch whose `rlbench` makes so many steps/s, give or take a share, or does something else (`TOY`)."""
    git(folder, "checkout", "--quiet", "-B", branch)
    (folder / "toy_rate.txt").write_text(f"{rate} {noise} {what}\n")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", branch)


def make_repository(folder: Path) -> Path:
    """A repository with a branch `main` that makes 100 steps/s."""
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    template = json.loads(make_record(steps_per_s=100.0).model_dump_json())
    for name, text in (
        ("pyproject.toml", PYPROJECT),
        ("backend.py", BACKEND),
        ("toy.py", TOY),
        ("toy_template.json", json.dumps(template)),
    ):
        (folder / name).write_text(text)
    commit(folder, "main", 100.0)
    return folder
