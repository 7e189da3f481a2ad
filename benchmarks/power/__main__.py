"""How small a loss `rlbench gate` sees, and how often it is wrong: `nox -s power`, or `nox -s power -- --only floors`.

- floors: gates of a commit against itself, which say how small a change they see, on an idle machine and beside a
  process that computes half of the time.
- turns: the same, twice, of gates whose sides run one after the other, on an idle machine.
- losses: of 40 commits that were made slower by 3 %, how many are found.
- searches: `rlbench gate --bisect` among 40 commits of which one is slower.
- same: of 100 commits that change nothing, how many are found to be slower.

Ctrl-C, or `kill`, stops it at any time; started again, it goes on where it was, with the commit that it began with,
because what was measured is kept in `--out`. It prints its tables as Markdown. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import tempfile
from pathlib import Path

from benchmarks.against.programs import ROOT
from benchmarks.power.planted import Clone
from benchmarks.power.tables import table
from benchmarks.power.trials import PARTS, Bench, read_rows


def main() -> None:
    """Measures what is missing, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("rlbench-power"), help="folder for what was measured")
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--print", action="store_true", help="measure nothing more")
    asked = parser.parse_args()
    parts = asked.only.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--only {', '.join(sorted(unknown))}: choose of {', '.join(PARTS)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    asked.out.mkdir(exist_ok=True)
    commit, rows = _commit(asked.out / "commit.txt"), asked.out / "rows.jsonl"
    if not asked.print:
        with tempfile.TemporaryDirectory(prefix="rlbench-power-") as folder:
            clone = Clone.make(ROOT, commit, Path(folder, "clone"))
            bench = Bench(clone=clone, rows=rows, say=lambda line: print(line, flush=True))
            for part in parts:
                for _ in PARTS[part](bench):
                    pass
    known = read_rows(rows)
    print(f"commit {commit[:12]}; {' and '.join(sorted({row['machine'] for row in known.values()}))}")
    for part in parts:
        if lines := list(table(part, known)):
            print("", *lines, sep="\n")


def _commit(kept: Path) -> str:
    """The commit that these measurements began with: the last one, if they begin now."""
    if not kept.exists():
        done = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], check=True, stdout=subprocess.PIPE)
        kept.write_bytes(done.stdout)
    return kept.read_text(encoding="utf-8").strip()


if __name__ == "__main__":
    main()
