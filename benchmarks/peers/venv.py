"""Makes a peer's virtual environment: peers pin packages that exclude one another, and ours.

It lies in `$XDG_CACHE_HOME/rlbench/peers/NAME` (`~/.cache` without that variable) and is made anew when the pinned
requirements or Python changed. A lock beside it lets one process build while others wait; the kernel frees the lock
when its holder dies, and a half-made environment has no stamp, so the next one begins again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

STAMP = "rlbench-requirements.sha256"
"""Written last: what the environment was made from."""
HERE = Path(__file__).parent


def cache_folder() -> Path:
    """Where the environments lie."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlbench" / "peers"


def requirements_of(peer: str) -> Path:
    """The pinned requirements of a peer. Raises ValueError: unknown, with the known ones."""
    path = HERE / f"{peer}.txt"
    if not path.exists():
        raise ValueError(f"peer {peer}: unknown; known: {', '.join(sorted(p.stem for p in HERE.glob('*.txt')))}")
    return path


def digest(requirements: Path) -> str:
    """Changes with the requirements, Python's version and where Python is."""
    made_from = f"{sys.version}\n{sys.base_prefix}\n{requirements.read_text(encoding='utf-8')}"
    return hashlib.sha256(made_from.encode()).hexdigest()


def peer_python(peer: str) -> Path:
    """The peer's interpreter; makes its environment first where there is none, or an old one. Takes minutes then.

    Raises ValueError for an unknown peer, subprocess.CalledProcessError when pip fails.
    """
    requirements = requirements_of(peer)
    folder = cache_folder() / peer
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp, wanted = folder / STAMP, digest(requirements)
        if not (stamp.exists() and stamp.read_text(encoding="utf-8") == wanted):
            print(f"making the virtual environment of {peer} in {folder}", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, with_pip=True, symlinks=True)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--requirement"]
            subprocess.run([*pip, str(requirements)], check=True)
            stamp.write_text(wanted, encoding="utf-8")
    return folder / "bin" / "python"
