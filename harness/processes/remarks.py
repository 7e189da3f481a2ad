"""Remarks of a run's processes about problems that did not end the run: an environment whose `close()` raised, say.

Who writes: any process adds lines to its own file in the run's folder. Who reads: the runner, when the run is over, for
the warnings of the record. Nothing blocks. Remarks that cannot be read are left out, since the run does not need them.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from rlbench.results.reading.untrusted import MIB, read_text, visible

if TYPE_CHECKING:
    from pathlib import Path

PATTERN = "remarks-*.jsonl"
MOST = 100
"""Remarks that are kept of a run; a last line gives the number of the others."""


def leave(folder: Path, label: str, remark: str) -> None:
    """Adds a remark of the process whose name in files and errors is `label`."""
    path = folder / PATTERN.replace("*", label)
    with suppress(OSError), path.open("a", encoding="utf-8") as file:  # the disk may be full
        file.write(json.dumps(remark) + "\n")


def read(folder: Path) -> list[str]:
    """The remarks of all processes, in the order of their labels."""
    remarks: list[str] = []
    for path in sorted(folder.glob(PATTERN)):
        with suppress(ValueError, RecursionError):
            for line in read_text(path, MIB).splitlines():
                said = json.loads(line)
                remarks += [visible(said)] if isinstance(said, str) else []
    more = len(remarks) - MOST
    return [*remarks[:MOST], f"{more:,} remarks more of this kind"] if more > 0 else remarks
