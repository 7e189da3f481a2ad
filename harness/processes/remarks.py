"""What processes of a run have to say of it that did not end it: an environment whose `close()` raised, say.

Who writes: any process, a line of its own file in the run's folder. Who reads: the runner when the run is over, for the
warnings of the record. Nothing blocks. What cannot be read is left out: it was nothing that the run depends on.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from results.reading.untrusted import MIB, read_text, visible

if TYPE_CHECKING:
    from pathlib import Path

PATTERN = "remarks-*.jsonl"
MOST = 100
"""Of a run; of more the number is told."""


def leave(folder: Path, label: str, remark: str) -> None:
    """Adds a remark of the process that files and errors call `label`."""
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
