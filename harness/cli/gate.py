"""The sub-command `rlbench gate`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from rlbench.harness.cli.flags import flags
from rlbench.harness.cli.read_runs import OUT

BUDGET_S = 1800.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RevisionOptions:
    """Options for `rlbench run` of each revision, which may be older than this one."""

    systems: Annotated[str | None, "Of revisions: systems, as `rlbench run` takes them."] = None
    gpus: Annotated[str | None, "GPU counts."] = None
    scenario: Annotated[str | None, "Scenarios."] = None
    workload: Annotated[str | None, "homogeneous, heterogeneous, or both."] = None
    protocol: Annotated[
        str | None, "How long a run is, and which iterations count. [default: still, where both sides know it]"
    ] = None
    iterations: Annotated[int | None, "Iterations of a run."] = None
    seconds: Annotated[float | None, "Seconds of a run."] = None
    env_steps: Annotated[int | None, "Env steps of a run."] = None
    device: Annotated[str | None, "cuda, cpu or emulated."] = None
    time_scale: Annotated[float | None, "Of emulated scenarios."] = None

    def words(self) -> list[str]:
        """Those that were given, as words of a command line."""
        given = {f"--{name.replace('_', '-')}": value for name, value in asdict(self).items() if value is not None}
        return [word for name, value in given.items() for word in (name, str(value))]


@flags
def gate(
    baseline: Annotated[
        str | None,
        typer.Option(help="What must not be worsened: a folder of runs, or a git revision. [default with --aa: HEAD]"),
    ] = None,
    candidate: Annotated[
        str | None, typer.Option(help="What is to be judged: another folder, or another revision.")
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Share by which a metric may be worse. [default: 0.05; with --learning: 0.5]")
    ] = None,
    learning: Annotated[
        str | None,
        typer.Option(
            metavar="<goal>", help="Judge env steps until success>=NUMBER, or return>=NUMBER, in place of steps/s."
        ),
    ] = None,
    aa: Annotated[
        bool, typer.Option("--aa", help="Measure --baseline against itself, and say how large a change can be seen.")
    ] = False,
    bisect: Annotated[
        bool,
        typer.Option("--bisect", help="Find the commit after --baseline, up to --candidate, that made a cell slower."),
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option(
            help="Of revisions: seconds of measuring at most; it ends as soon as the answer is clear. [default: 1800]"
        ),
    ] = None,
    to_run: RevisionOptions = RevisionOptions(),
    in_turn: Annotated[
        bool,
        typer.Option(
            "--in-turn", help="Measure one revision after the other, as for GPUs, not at once on halves of the cores."
        ),
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Of the first repetition. [default: 0]", min=0)] = None,
    out: Annotated[Path | None, typer.Option(help="Of revisions: folder for the runs. [default: rlbench-runs]")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the outcome to this file, as JSON.")] = None,
    junit: Annotated[Path | None, typer.Option(help="As JUnit XML.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="As Markdown, for a pull request.")] = None,
) -> None:
    """Say whether a candidate is slower than a baseline, or learns worse: two folders of runs, or two revisions.

    Exit code: 0 passed, 1 regression, 2 usage, 3 inconclusive, 4 not comparable.
    """
    from rlbench.harness.commands.gate.command import (
        Outputs,
        ToMeasure,
        bisect_revisions,
        gate_folders,
        gate_revisions,
    )
    from rlbench.results.verdicts import gate as steps
    from rlbench.results.verdicts import learning as learned

    goal = None if learning is None else learned.parse_goal(learning)
    if tolerance is None:
        tolerance = learned.TOLERANCE if goal else steps.TOLERANCE
    given = [
        *to_run.words(),
        *[f"--{name}" for name, on in (("in-turn", in_turn), ("bisect", bisect)) if on],
        *[f"--{name}" for name, value in (("seed", seed), ("budget", budget), ("out", out)) if value is not None],
    ]
    outputs = Outputs(json=json, junit=junit, markdown=markdown)
    if goal and (aa or to_run.protocol == "still"):
        raise ValueError("--learning: goes neither with --aa nor with --protocol still, which learns nothing")
    if bisect and (aa or goal or outputs != Outputs()):
        raise ValueError("--bisect: goes neither with --aa, nor --learning, nor files of a gate's outcome")
    baseline, candidate = _sides(baseline, candidate, aa=aa)
    if not aa and Path(baseline).is_dir() and Path(candidate).is_dir():
        if given:
            raise ValueError(f"{given[0]}: is of revisions; these folders hold the runs that they hold")
        raise typer.Exit(gate_folders(Path(baseline), Path(candidate), tolerance, goal, outputs))
    folders = [name for name in (baseline, candidate) if Path(name).is_dir()]
    if len(folders) == 1 and not aa:
        other = candidate if folders == [baseline] else baseline
        raise ValueError(f"{other}: is no folder, as {folders[0]} is; name two folders of runs, or two revisions")
    if to_run.systems is None:
        raise ValueError("gate: needs --systems to measure revisions")
    budget = BUDGET_S if budget is None else budget
    if not budget > 0:
        raise ValueError(f"--budget {budget}: must be above 0 seconds")
    asked = ToMeasure(
        options=to_run.words(),
        device=to_run.device,
        in_turn=in_turn,
        seed=seed or 0,
        budget_s=budget,
        tolerance=tolerance,
        goal=goal,
        out=out or OUT,
    )
    raise typer.Exit(
        bisect_revisions(baseline, candidate, asked) if bisect else gate_revisions(baseline, candidate, asked, outputs)
    )


def _sides(baseline: str | None, candidate: str | None, *, aa: bool) -> tuple[str, str]:
    """Both sides, which are one with `--aa`. Raises ValueError for one too many, or one that is missing."""
    if aa and candidate is not None:
        raise ValueError("--aa: measures --baseline against itself; leave --candidate out")
    if aa:
        baseline = candidate = baseline or "HEAD"
    if baseline is None or candidate is None:
        raise ValueError("gate: needs --baseline and --candidate, or --aa")
    return baseline, candidate
