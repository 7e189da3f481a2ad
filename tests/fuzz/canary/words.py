"""All commands, with words that name what is in a hostile place; each is drawn anew for every use."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.fuzz.canary.library import OPTIONS
from tests.fuzz.canary.tree import Place

QUICK_S, SLOW_S = 60.0, 180.0
"""A command that is not over by then hangs; one that runs something has longer."""
CODES = frozenset({0, 1, 2, 3, 130, 141})
NOT_COMPARABLE = 4
"""A further one of `gate`."""


@dataclass(frozen=True, slots=True)
class Chooser:
    """Names what is in a place."""

    place: Place
    draws: np.random.Generator

    def pick(self, *values: str) -> str:
        """One of them."""
        return values[int(self.draws.integers(len(values)))]

    def some(self, *words: str) -> list[str]:
        """All of these words or none."""
        return list(words) if self.draws.random() < 0.5 else []

    def out(self) -> str:
        """The folder of sweeps, as the user would name it."""
        return self.pick(str(self.place.out), "../out", "rlbench-runs")

    def sweep(self) -> str:
        """A sweep, or what was to be one."""
        return self.pick(*(_below(self.place.out, 1) or [str(self.place.out)]))

    def run(self) -> str:
        """A run, or what was to be one; mostly one with a policy, which most commands need."""
        with_policy = sorted(str(path.parent) for path in self.place.out.glob("*/*/policy.pt"))
        if with_policy and self.draws.random() < 0.7:
            return self.pick(*with_policy)
        return self.pick(*(_below(self.place.out, 2) or [str(self.place.out)]))

    def any(self) -> str:
        """One of the three."""
        return self.pick(self.out(), self.out(), self.sweep(), self.sweep(), self.run())


def _below(folder: Path, levels: int) -> list[str]:
    """What looks like a folder, so many levels below one."""
    found = [str(folder)]
    for _ in range(levels):
        inside = [entry.path for path in found if os.path.isdir(path) for entry in os.scandir(path)]  # noqa: PTH112
        found = [path for path in inside if not os.path.isfile(path)]  # noqa: PTH113
    return sorted(found)


def _export(c: Chooser, form: str, file: str) -> list[str]:
    out = ["--out", file] if form in {"parquet", "tensorboard"} else c.some("--out", file)
    return ["export", "--format", form, *out, *([c.run()] if form == "perfetto" else [c.any(), *c.some(c.any())])]


def _gate(c: Chooser) -> list[str]:
    outputs = [*c.some("--json", "gate.json"), *c.some("--junit", "gate.xml"), *c.some("--markdown", "gate.md")]
    return ["gate", "--baseline", c.any(), "--candidate", c.any(), *outputs]


HELPED = (
    *(
        "",
        "run",
        "predict",
        "reproduce",
        "list",
        "doctor",
        "watch",
        "results",
        "report",
        "compare",
        "export",
        "history",
        "gate",
    ),
    *("systems", "systems install", "systems remove", "scenes", "evaluate", "profile"),
)

Words = Callable[[Chooser], list[str]]
QUICK: dict[str, Words] = {
    "results": lambda c: ["results", c.any()],
    "results --json": lambda c: ["results", c.any(), "--json"],
    "results --csv": lambda c: ["results", c.any(), "--csv", "--newest", c.pick("0", "1")],
    "results --where": lambda c: ["results", c.out(), "--where", c.pick("system=sync", "gpus=1", "sweep=..", "x=1")],
    "report": lambda c: ["report", *c.some("--out", "out.html"), *c.some(c.any())],
    "report --history": lambda c: ["report", c.any(), c.any(), "--history", "rlbench-history.jsonl"],
    "compare": lambda c: ["compare", c.any(), c.any(), *c.some("--json")],
    "gate": _gate,
    "gate of revisions": lambda c: [
        *("gate", "--baseline", "HEAD", "--candidate", c.pick("no-such", "--all", "HEAD~9", c.run())),
        *("--systems", "sync", "--out", c.out()),
    ],
    "export json": lambda c: _export(c, "json", "runs.json"),
    "export csv": lambda c: _export(c, "csv", "runs.csv"),
    "export parquet": lambda c: _export(c, "parquet", "runs.parquet"),
    "export markdown": lambda c: _export(c, "markdown", "runs.md"),
    "export tensorboard": lambda c: _export(c, "tensorboard", "tb"),
    "export perfetto": lambda c: _export(c, "perfetto", "trace.json"),
    "history": lambda c: ["history", *c.some(c.any()), *c.some("--json")],
    "list": lambda c: ["list", *c.some("systems"), *c.some("--json")],
    "doctor": lambda _: ["doctor"],
    "scenes": lambda _: ["scenes", "--out", "scenes", "--count", "1"],
    "systems remove": lambda c: [
        "systems",
        "remove",
        c.pick("sb3", "rllib", "sample-factory", "torchrl", "all", "../x"),
    ],
    "run --dry-run": lambda c: ["run", *OPTIONS, "--iterations", "2", "--dry-run", "--out", c.out()],
    "run --resume --dry-run": lambda c: ["run", "--resume", "--dry-run", "--out", c.out()],
    "run, refused": lambda c: ["run", "--systems", c.pick("no-such", "mine=out.toml", "mine=../out"), "--out", c.out()],
    "predict": lambda c: ["predict", "--systems", "sync", "--iterations", "2", "--out", c.out()],
    "predict of a profile": lambda c: [
        *("predict", "--systems", "sync", "--iterations", "2", "--out", c.out()),
        *("--scenario", "emulated/profile.toml"),
    ],
    "predict --from-run": lambda c: ["predict", "--from-run", c.run(), "--iterations", "2", "--out", c.out()],
    "profile --from-run": lambda c: ["profile", "--from-run", c.run(), *c.some("--out", "out.toml")],
    "evaluate": lambda c: [
        "evaluate",
        "--episodes",
        "1",
        *c.pick(c.run(), f"--out={c.out()}").split("\n"),
        *c.some("--json"),
    ],
    "--help": lambda c: [*c.pick(*HELPED).split(), "--help"],
    "nonsense": lambda c: [c.pick("", "nonsense", "run -x", "results --newest x").strip() or "--version"],
}
"""Those that end within some tenths of a second."""
RESUMING: dict[str, Words] = {"run --resume": lambda c: ["run", "--resume", "--out", c.out()]}
"""Ends as soon, where no cell is left to run."""
SLOW: dict[str, Words] = {
    "run": lambda c: ["run", *OPTIONS, "--iterations", "1", "--out", c.pick(c.out(), "new")],
    "run of a profile": lambda c: [
        *("run", "--systems", "sync", "--iterations", "1", "--device", "emulated", "--time-scale", "0.02"),
        *("--scenario", "emulated/profile.toml:num_envs=2:rollout_steps=8", "--out", c.pick(c.out(), "new")),
    ],
    "run --resume, to its end": RESUMING["run --resume"],
    "reproduce": lambda c: ["reproduce", c.pick("ver-table1", "ddppo-scaling"), "--out", c.out()],
    "profile": lambda c: [
        *("profile", "--scenario", "emulated/open-fridge:num_envs=2:rollout_steps=8", "--seconds", "1"),
        *("--runs", c.pick(c.out(), "new"), *c.some("--out", "out.toml")),
    ],
    "watch": lambda c: ["watch", c.any()],
}
"""Those that start processes, or take as long."""
