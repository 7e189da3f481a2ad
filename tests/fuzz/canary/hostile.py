"""Makes a folder of sweeps hostile: links out of it, pipes, names of what is the user's own wherever a text may stand.

Each change is a function of `CHANGES`, which draws what it changes, and how, from a generator of its own: one that is
left out changes nothing for the others. It returns a line that says what it did.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rlbench.harness.run.sweep import PLAN_FILE
from rlbench.results.records.store import PARTIAL_PREFIX
from tests.fuzz.canary.tree import Place

T = TypeVar("T")
SPARSE_BYTES, SMALL_BYTES = 2**40, 2**24
ODD_NAMES = (
    b"bad-\xff",
    b"bad\nname",
    b"\x1b]0;x\x07",
    b"-rf",
    b"--out",
    b"~",
    b"a" * 250,
    b"[bold]x",
    b"$(touch pwned)",
    b" ",
)
PROFILES = ("run.json", "series.parquet", "spans.parquet", "policy.pt", PLAN_FILE)


@dataclass(frozen=True, slots=True)
class Scene:
    """What a change is made to."""

    place: Place
    draws: np.random.Generator
    pid: int
    """Of a process of the user's."""

    def pick(self, values: Sequence[T]) -> T:
        """One of them."""
        return values[int(self.draws.integers(len(values)))]

    def sweeps(self) -> list[Path]:
        """Folders in `out`."""
        return sorted(path for path in self.place.out.iterdir() if path.is_dir() and not path.is_symlink())

    def entries(self) -> list[Path]:
        """All that is in `out`, at any depth."""
        found = []
        for folder, folders, files in os.walk(self.place.out):
            found += [Path(folder, name) for name in (*folders, *files)]
        return sorted(found)

    def victim(self, pattern: str = "*") -> Path | None:
        """Something in `out`: as often what lies in the folder of a killed run as all else."""
        there = [path for path in self.entries() if path.match(pattern)]
        partial = [path for path in there if PARTIAL_PREFIX in str(path)]
        top = [path for path in there if path.parent.parent == self.place.out]
        groups = [group for group in (there, partial, top) if group]
        return self.pick(self.pick(groups)) if groups else None

    def target(self) -> Path:
        """Something of the user's."""
        return self.pick(self.pick([self.place.files(), self.place.folders()]))

    def text(self) -> Any:
        """What may stand in a file in the place of a text."""
        place = self.place
        paths = [*map(str, self.place.files()), *map(str, self.place.folders()), *place.shm_names()]
        up = [os.path.relpath(path, place.out / "a" / "b") for path in paths[:4]]
        odd = [
            "..",
            "../..",
            "",
            ".",
            "\x00",
            "\x1b[2J",
            "-",
            "rlb-aaaaaaaa",
            "rlb-node-cccccccc",
            place.mark,
            "../home",
        ]
        command = [f"touch {place.pwned}", f"$(touch {place.pwned})", f"sh -c 'touch {place.pwned}' {{host}}"]
        return self.pick(
            [self.pick(paths), self.pick(paths), self.pick(up), self.pick(odd), self.pick(command), self.pid]
        )


def remove(path: Path) -> None:
    """Removes what is there; never what a link leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def is_small(path: Path) -> bool:
    """Whether it is a file, itself, that can be read whole."""
    return path.is_file() and not path.is_symlink() and path.stat().st_size < SMALL_BYTES


def put(scene: Scene, path: Path, *, is_named: bool = False) -> str:
    """Puts something hostile there; says what. `is_named`: a folder that users name, whose links they follow."""
    remove(path)
    target = scene.target()
    kinds: dict[str, Callable[[], object]] = {
        f"a link to {target}": lambda: path.symlink_to(target),
        f"a link (relative) to {target}": lambda: path.symlink_to(os.path.relpath(target, path.parent)),
        f"a link to {scene.place.home}/new": lambda: path.symlink_to(scene.place.home / "new"),
        "a link to itself": lambda: path.symlink_to(path),
        "a link to ..": lambda: path.symlink_to(".."),
        "a link to /dev/zero": lambda: path.symlink_to("/dev/zero"),
        "a pipe": lambda: os.mkfifo(path),
        "a socket": lambda: _put_socket(path),
        "an empty folder": path.mkdir,
        "an empty file": path.touch,
        "a file of a terabyte": lambda: _put_sparse(path),
    }
    if target.is_file() and target.stat().st_dev == path.parent.stat().st_dev:
        kinds[f"another name of {target}"] = lambda: path.hardlink_to(target)
    kind = scene.pick([kind for kind in kinds if not (is_named and f"to {scene.place.root}" in kind)])
    kinds[kind]()
    return f"{path}: {kind}"


def _put_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a path may be longer than an address
    try:
        with socket.socket(socket.AF_UNIX) as made, suppress(OSError):
            made.bind(path.name)
    finally:
        os.chdir(here)


def _put_sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, SPARSE_BYTES)


def replace_entry(scene: Scene) -> str:
    """Any file or folder."""
    path = scene.victim()
    return put(scene, path) if path else "nothing"


def lock_entry(scene: Scene) -> str:
    """One that nobody may read, as far as that holds for whoever runs this."""
    path = scene.victim()
    if path is None or path.is_symlink():
        return "nothing"
    mode = int(scene.pick((0o000, 0o444, 0o777)))
    path.chmod(mode)
    return f"{path}: mode {mode:03o}"


def rename_entry(scene: Scene) -> str:
    """A folder with a name that is no text, or an order to somebody."""
    path = scene.victim()
    if path is None:
        return "nothing"
    name = os.fsdecode(scene.pick(ODD_NAMES))
    new = path.with_name(scene.pick((name, PARTIAL_PREFIX + name)))
    if new.exists() or new.is_symlink():
        return "nothing"
    path.rename(new)
    return f"{path}: is called {new.name!a}"


def change_texts(scene: Scene) -> str:
    """Texts of a JSON file: one, some or all."""
    path = scene.victim("*.json*")
    if path is None or not is_small(path):
        return "nothing"
    share = float(scene.pick((0.02, 0.2, 1.0)))
    try:
        document = json.loads(path.read_text())
    except ValueError:
        return "nothing"

    def changed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: changed(each) for key, each in value.items()}
        if isinstance(value, list):
            return [changed(each) for each in value]
        return scene.text() if isinstance(value, str) and scene.draws.random() < share else value

    path.write_text(json.dumps(changed(document)))
    return f"{path}: {share:.0%} of its texts"


def link_sweep(scene: Scene) -> str:
    """A sweep that is a link to one of the user's own."""
    target = scene.pick([scene.place.home / "20990101-000000-cafe", scene.place.home, scene.place.home / "precious"])
    path = scene.place.out / scene.pick(("20990101-000000-cafe", "20980101-000000-cafe"))
    if path.exists() or path.is_symlink():
        return "nothing"
    path.symlink_to(target)
    return f"{path}: a link to {target}"


def plan_commands(scene: Scene) -> str:
    """A plan that would have commands executed."""
    path = scene.victim(PLAN_FILE)
    if path is None or not is_small(path):
        return "nothing"
    try:
        plan = json.loads(path.read_text())
        cells = plan["cells"]
    except (ValueError, KeyError, TypeError):
        return "nothing"
    touch = f"touch {scene.place.pwned}"
    document = {"command": touch.split(), "environment": "instrumented"}
    launches: tuple[Any, ...] = (
        None,
        {"hosts": ["a"], "gpus_per_node": 1, "remote": f"{touch} {{host}}"},
        {"hosts": [f"-oProxyCommand={touch}"], "gpus_per_node": 1},
        {"gpus_per_node": 1, "settings": {"wrap": touch}},
        {"gpus_per_node": 1, "settings": {"output": str(scene.place.files()[0])}},
        {"gpus_per_node": 1, "settings": {"partition": f"x\n{touch}"}},
    )
    launch = scene.pick(launches)
    plan["launch"] = launch
    if launch is None and cells:
        cells[-1] |= {"system": "mine", "system_settings": {}, "system_file": {"suffix": "toml", "document": document}}
    path.write_text(json.dumps(plan))
    return f"{path}: commands, {launch or document}"


CHANGES: tuple[Callable[[Scene], str], ...] = (
    *(replace_entry, replace_entry, replace_entry, lock_entry, rename_entry, change_texts, change_texts),
    *(link_sweep, plan_commands),
)
