"""Spoils files where that leads to code that no file has led to yet: `nox -s fuzz -- --runs N KIND ...`.

Each kind of file is read by a process of its own, with atheris. A file that is a fault stays in `--out`, and the
process ends with what it raised. Kinds are those of `tests.fuzz.kinds`; the tests read others, without this program.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import subprocess
import sys
import warnings
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["harness", "results", "reports", "scenarios", "systems"]):
    from tests.fuzz.kinds import KINDS
    from tests.fuzz.targets import make_target
    from tests.vanishing import vanishing_folder

RUNS = 10_000
HANG_S, MEMORY_MB = 300, 4096
SEED = 1


def fuzz(name: str, runs: int, out: Path, folder: Path) -> None:
    """Reads so many files of a kind; ends the process. `folder` is empty."""
    kept = out / name
    kept.mkdir(parents=True, exist_ok=True)
    corpus, here = folder / "corpus", folder / "here"
    corpus.mkdir()
    here.mkdir()
    good = KINDS[name].good()
    (corpus / "good").write_bytes(good)
    target = make_target(name, here)
    warnings.simplefilter("error")

    def read(data: bytes) -> None:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            target(data)
        assert "\x1b" not in printed.getvalue()

    limits = f"-runs={runs}", f"-timeout={HANG_S}", f"-rss_limit_mb={MEMORY_MB}", f"-max_len={2 * len(good)}"
    options = f"-seed={SEED}", f"-artifact_prefix={kept}/", "-print_final_stats=1", "-verbosity=0"
    atheris.Setup([sys.argv[0], *limits, *options, str(corpus)], read)
    atheris.Fuzz()


def main() -> None:
    """Reads files of all kinds, or of those that are named; exit code 1 where there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(KINDS)}; all by default")
    parser.add_argument("--runs", type=int, default=RUNS, help="files of each kind")
    parser.add_argument("--out", type=Path, default=Path("fuzz-faults"), help="where files that are a fault are kept")
    parser.add_argument("--here", type=Path, metavar="FOLDER", help="one kind, in this process, with an empty folder")
    asked = parser.parse_args()
    if unknown := set(asked.kinds) - set(KINDS):
        parser.error(f"{', '.join(sorted(unknown))}: unknown; known: {', '.join(KINDS)}")
    if asked.here:
        (name,) = asked.kinds
        fuzz(name, asked.runs, asked.out, asked.here)
        return
    failed = []
    for name in asked.kinds or KINDS:
        with vanishing_folder("rlbench-fuzz-") as folder:  # atheris ends its process without ado
            variables = {**os.environ, "TMPDIR": str(folder)}
            options = ("--here", str(folder), "--runs", str(asked.runs), "--out", str(asked.out))
            done = subprocess.run(
                [sys.executable, "-m", "tests.fuzz.guided", name, *options], env=variables, check=False
            )
        said = "no fault" if done.returncode == 0 else "a fault"
        sys.stdout.write(f"{name}: {asked.runs:,} files, {said}\n")
        sys.stdout.flush()
        failed += [name] * (done.returncode != 0)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
