"""`appo` against Sample Factory 2.1.1: the same workload, network, settings and cores, in turn within one session.

`nox -s bench -- sample-factory` runs it: ViZDoom `basic` with 16 environments, the simplified network of Sample
Factory's paper with an LSTM of 512, T 32, batches of 2,048, one epoch. Each side is measured from outside, by env steps
counted in its environments over a window of wall-clock time after a warm-up. Afterwards it measures what bounds both,
simulation, inference and training alone on the same cores, and prints which share of that ceiling each side reached.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.against import ceiling
from benchmarks.against.measure import Program, Timing, prepare, steps_per_s
from benchmarks.against.programs import learned_steps_per_s, machine, our_program, peer_program, simulation_program
from benchmarks.in_turn import Side, compare
from rlbench.harness.plan.overrides import split_scenario
from rlbench.harness.plan.registry import load_scenario

PEER = "sample_factory"
SYSTEM = "appo:learn.learning_rate=1e-4:learn.value_coef=1.0"
"""Its other defaults are the peer's. Our value loss is half the squared error times 1.0, theirs the whole times 0.5."""
SCENARIO = "vizdoom/basic:num_envs={num_envs}:policy=conv"
NUM_STEPS, BATCH_SIZE = 32, 2048
"""T, and samples of an update: both sides' settings."""


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", default=SYSTEM, help="of ours, with settings. [default: %(default)s]")
    parser.add_argument("--rounds", type=int, default=2, help="of ours, theirs, theirs, ours")
    parser.add_argument("--seconds", type=float, default=60, help="window of each measurement")
    parser.add_argument("--warmup", type=float, default=30, help="seconds before it")
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--only-ceiling", action="store_true")
    return parser.parse_args()


def ours(folder: Path, asked: argparse.Namespace, scenario: str, timing: Timing) -> Side:
    """Makes the function that measures our side."""
    numbers = itertools.count()

    def measure() -> float:
        program = our_program(asked.system, scenario, timing, folder / f"ours-{next(numbers)}")
        figure = steps_per_s(program, timing)
        learned = learned_steps_per_s(program.folder / "runs")
        return _say(program, figure, f"; by its own record {learned:,.0f} learned/s")

    return measure


def theirs(folder: Path, module: str, num_envs: int, timing: Timing, peer: str = PEER) -> Side:
    """Makes the function that measures a peer's side."""
    numbers = itertools.count()

    def measure() -> float:
        program = peer_program(peer, module, num_envs, folder / f"{module}-{next(numbers)}")
        return _say(program, steps_per_s(program, timing))

    return measure


def _say(program: Program, figure: float, more: str = "") -> float:
    print(f"  {program.name}: {figure:,.0f} env steps/s{more}", flush=True)
    return figure


def costs(folder: Path, asked: argparse.Namespace, scenario: str) -> ceiling.Costs:
    """Costs of simulation, inference and training, each alone on the cores; takes the faster of two simulations."""
    timing = Timing(warmup_s=min(5, asked.warmup), window_s=min(20, asked.seconds))
    simulation = theirs(folder, "run_pure_simulation", asked.num_envs, timing)()
    own = simulation_program(scenario, asked.num_envs, folder / "simulation")
    simulation = max(simulation, _say(own, steps_per_s(own, timing)))
    name, settings = split_scenario(scenario, "scenario")
    work = load_scenario(name, "homogeneous", settings)
    return ceiling.Costs(
        simulation_steps_per_s=simulation,
        infer_s=ceiling.infer_s(work, asked.num_envs, asked.cores),
        train_s=ceiling.train_s(work, BATCH_SIZE, NUM_STEPS, asked.cores),
    )


def main() -> None:
    """Measures both sides and the ceiling, and prints all figures."""
    asked = arguments()
    prepare(asked.cores)
    print(machine(), flush=True)
    timing = Timing(warmup_s=asked.warmup, window_s=asked.seconds)
    scenario = SCENARIO.format(num_envs=asked.num_envs)
    with tempfile.TemporaryDirectory(prefix="rlbench-bench-") as made:
        folder = Path(made)
        figures = {}
        if not asked.only_ceiling:
            their_side = theirs(folder, "run_sample_factory", asked.num_envs, timing)
            compared = compare(ours(folder, asked, scenario, timing), their_side, asked.rounds)
            name = asked.system.partition(":")[0]
            print(*compared.lines(name, PEER), sep="\n", flush=True)
            figures = {name: median(compared.ours), PEER: median(compared.theirs)}
        found = costs(folder, asked, scenario)
    print(found)
    for name, figure in figures.items():
        print(f"{name} reached {figure / found.ceiling_steps_per_s:.0%} of the ceiling")


if __name__ == "__main__":
    main()
