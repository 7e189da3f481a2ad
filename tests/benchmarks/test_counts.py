from __future__ import annotations

import json
from pathlib import Path

from benchmarks.gate import hot_paths
from benchmarks.gate.check_counts import Counts, read_counts, read_side

DUMP = """# callgrind format
positions: instr
events: Ir
summary: 4000

ob=/usr/lib/libc.so.6
fl=malloc.c
fn=malloc
0x98a7d 9999
fl=malloc.c
fn=malloc
0x98930 120
0x98932 121
cfn=_int_malloc
calls=77777 0x97000
0x98940 2000

fn=_int_malloc
0x97000 5000

fn=calloc
0x996e0 40

totals: 4000
"""


def test_an_allocation_is_the_first_instruction_of_a_function_that_allocates() -> None:
    """Not that of another part of it, nor of what it calls; each number is that of one of the calls together."""
    assert hot_paths.NUM_CALLS == 40
    assert read_counts(DUMP) == Counts(instructions=100.0, allocations=4.0)


def test_a_path_that_cannot_be_had_has_no_dump(tmp_path: Path) -> None:
    """What follows it has the next one."""
    (tmp_path / "result.json").write_text(json.dumps({"span": "", "booking": "ImportError: gone", "packing": ""}))
    for number, total in ((1, 4000), (2, 8000)):
        (tmp_path / f"out.{number}").write_text(DUMP.replace("totals: 4000", f"totals: {total}"))
    side = read_side(tmp_path)
    assert side["booking"] == "ImportError: gone"
    assert [side[name].instructions for name in ("span", "packing")] == [100.0, 200.0]  # type: ignore[union-attr]
