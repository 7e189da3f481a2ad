from __future__ import annotations

from typing import Any

import pytest

from rlbench.results.fairness.differences import Difference, find_changes, find_differences
from tests.results.made_records import make_record
from tests.results.summaries import MACHINE, make_run


def told(*differences: Difference) -> dict[str, dict[str, list[str]]]:
    """Differences by aspect."""
    return {difference.aspect: difference.values for difference in differences}


@pytest.mark.parametrize(
    ("changed", "aspect", "values"),
    [
        ({"scenario": {"games": ["pong"]}}, "work", ("games breakout", "games pong")),
        ({"scenario": {"world": {"rooms": 3}}}, "work", ("world.rooms none", "world.rooms 3")),
        ({"scenario": {"frameskip": 1}}, "frameskip", ("4", "1")),
        ({"scenario": {"resolution": 42}}, "resolution", ("84", "42")),
        (
            {"scenario": {"width": 128, "height": 72, "render_resolutions": ["160x120"]}},
            "resolution",
            ("84", "128x72 from 160x120"),
        ),
        ({"scenario": {"policy": "resnet"}}, "network", ("conv", "resnet")),
        ({"learn": {"precision": "bfloat16"}}, "precision", ("float32", "bfloat16")),
        ({"choices": {"precision": "bfloat16"}}, "precision", ("float32", "bfloat16")),
        ({"scenario": {"rollout_steps": 64}}, "batch", ("1,024 env steps per GPU", "512 env steps per GPU")),
        ({"learn": {"epochs": 1}}, "epochs", ("2", "1")),
        ({"learn": {"num_minibatches": 4}}, "mini-batches", ("2", "4")),
        ({"learn": {"optimizer": "lamb"}}, "optimiser", ("adam", "lamb")),
        ({"learn": {"learning_rate": 2.5e-4}}, "learning rate", ("0.001", "0.00025")),
        ({"learn": {"clip": 0.1}}, "clip", ("0.2", "0.1")),
        ({"cell": {"device": "cuda"}}, "device", ("emulated", "cuda")),
        ({"cell": {"protocol": "steady"}}, "protocol", ("ddppo", "steady")),
        ({"figures": {"time_scale": 0.5}}, "time scale", ("1", "0.5")),
        ({"machine": {"num_affine_cores": 4}}, "cores per GPU", ("8", "2")),
        ({"machine": {"cpu_quota_cores": 3.0}}, "cores per GPU", ("8", "1.5")),
        ({"machine": {"cpu_model": "Xeon"}}, "machine", ("CPU EPYC", "CPU Xeon")),
        (
            {"machine": {"variables": {"OMP_NUM_THREADS": "1"}}},
            "machine",
            ("OMP_NUM_THREADS none", "OMP_NUM_THREADS 1"),
        ),
        ({"machine": {"gpus": [{"name": "H100"}]}}, "GPUs", ("2 x V100", "1 x H100")),
        ({"machine": {"gpu_source": "driver 570"}}, "versions", ("GPU driver 550.1", "GPU driver 570")),
        ({"packages": {"torch": "2.6", "numpy": "2.3"}}, "versions", ("torch 2.13", "torch 2.6")),
        ({"commit": "0123456789abcdef-dirty"}, "commit", ("0123456789", "0123456789-dirty")),
        ({"commit": None}, "commit", ("0123456789", "none")),
    ],
)
def test_every_aspect_is_named(changed: dict[str, Any], aspect: str, values: tuple[str, str]) -> None:
    """One change gives one difference, with what each system has in as few words as tell them apart."""
    found = find_differences([make_run("ddppo", 2), make_run("ver", 2, **changed)])
    assert told(*found) == {aspect: {values[0]: ["ddppo"], values[1]: ["ver"]}}


def test_where_options_were_written_is_no_difference() -> None:
    """Typed, or in a sweep file, or in another: the same work is comparable."""
    files = [None, *({"name": f"{name}.toml", "sha256": name * 64} for name in "ab")]
    assert find_differences([make_run("ver", 2, sweep_file=file) for file in files]) == []


def test_environments_per_gpu_are_the_batch_too() -> None:
    """Twice the environments with half the steps are the same batch."""
    more = make_run("ver", scenario={"num_envs": 16, "rollout_steps": 64})
    assert told(*find_differences([make_run(), more])) == {"environments per GPU": {"8": ["ddppo"], "16": ["ver"]}}


@pytest.mark.parametrize(
    "changed",
    [
        {"seed": 7},
        {"choices": {"collect": {"kind": "Dynamic", "min_batch": 1}}},
        {"choices": {"rollout": {"kind": "Variable", "num_steps": 0}}},
        {"choices": {"overlap": {"kind": "OneAhead"}, "average": {"kind": "Gossip", "beta": 0.5}}},
        {"choices": {"about": "another", "preempt": {"kind": "Optimal"}}},
        {"learn": {"correct": "vtrace", "rho": 2.0, "c": 2.0}},
        {"learn": {"momentum": 0.5}},
        {"scenario": {"preload": ["torch"]}},
        {"scenario": {"frameskip": 4.0}},
        {"machine": {"load_1m": 9.0, "memory_available_bytes": 1}},
        {"started_at": "2026-02-02T00:00:00+00:00", "duration_s": 99.0, "command": ["other"]},
        {"steps_per_s": 1.0},
    ],
)
def test_what_makes_systems_and_runs_different_is_no_difference(changed: dict[str, Any]) -> None:
    """Systems may differ in their own choices, and runs in their seeds, their moments and what they measured."""
    assert find_differences([make_run("ddppo"), make_run("ver", **changed)]) == []


def test_more_gpus_are_no_difference() -> None:
    """A GPU of eight has fewer of the machine's cores, and less of the only learner's batch, than one of one."""
    central = {"average": {"kind": "Central"}, "rollout": {"kind": "Trajectories", "num_steps": 32, "batch": 1024}}
    runs = [make_run("appo", gpus, seed=seed, choices=central) for gpus in (1, 2, 8) for seed in (0, 1)]
    assert find_differences(runs) == []


def test_the_batch_of_one_learner_is_shared_by_its_gpus() -> None:
    """By hand: 1,024 env steps for all are 1,024 of one GPU, as 8 x 128 are, but 128 of each of eight."""
    stream = {"kind": "Trajectories", "num_steps": 32, "batch": 1024}
    central = {"average": {"kind": "Central"}, "rollout": stream}
    assert find_differences([make_run("ddppo"), make_run("appo", choices=central)]) == []
    found = find_differences([make_run("ddppo", 8), make_run("appo", 8, choices=central)])
    assert told(*found) == {"batch": {"1,024 env steps per GPU": ["ddppo"], "128 env steps per GPU": ["appo"]}}
    each = make_run("appo", 8, choices={"rollout": stream})  # of ranks that all learn, each has a batch of its own
    assert find_differences([make_run("ddppo", 8), each]) == []


def test_a_system_that_sets_its_own_steps_has_its_own_batch() -> None:
    """`ddppo:rollout.num_steps=32` learns from 8 x 32 env steps."""
    short = make_run("ddppo-32", choices={"rollout": {"kind": "Fixed", "num_steps": 32}})
    (found,) = find_differences([make_run(), short])
    assert found.values == {"1,024 env steps per GPU": ["ddppo"], "256 env steps per GPU": ["ddppo-32"]}


def test_settings_of_another_optimiser_are_not_held_against_each_other() -> None:
    """SGD has no `adam_eps`; its momentum counts among those that use SGD."""
    runs = [make_run("ver"), *(make_run(f"sgd{m}", learn={"optimizer": "sgd", "momentum": m}) for m in (0.0, 0.9))]
    assert [each.sentence() for each in find_differences(runs)] == [
        "optimiser: adam (ver), sgd (sgd0.0, sgd0.9)",
        "momentum: 0.9 (sgd0.9), 0 (sgd0.0)",
    ]


def test_what_was_done_comes_before_how() -> None:
    """A sentence about the work stands above one about versions."""
    other = make_run("ver", commit=None, learn={"clip": 0.1}, cell={"protocol": "steady"}, scenario={"policy": "small"})
    assert list(told(*find_differences([make_run(), other]))) == ["network", "clip", "protocol", "commit"]


def test_what_is_not_recorded_is_unlike_everything() -> None:
    """Somebody else's system that records no configuration is not comparable, and does not stop the check."""
    found = told(*find_differences([make_run(), make_run("ver"), make_record("theirs", machine={}, configuration={})]))
    assert found["epochs"] == {"2": ["ddppo", "ver"], "not recorded": ["theirs"]}
    assert found["work"] == {"recorded": ["ddppo", "ver"], "not recorded": ["theirs"]}
    assert found["batch"]["not recorded"] == ["theirs"]
    assert found["machine"] == {"recorded": ["ddppo", "ver"], "not recorded": ["theirs"]}
    odd = make_record("odd", configuration={"scenario": {"num_envs": "many", "learn": 3}, "system": None, "limits": 1})
    assert find_differences([make_run(), odd])


def test_a_prediction_needs_no_machine() -> None:
    """Figures that a model made up on two machines are alike; with another version of the model they are not."""
    predicted: dict[str, Any] = {"figures": {"predicted": True}}
    elsewhere: dict[str, Any] = {"machine": {"cpu_model": "Xeon", "num_affine_cores": 2, "gpus": []}}
    assert find_differences([make_run(**predicted), make_run("ver", **predicted, **elsewhere)]) == []
    (found,) = find_differences([make_run(**predicted), make_run("ver", **predicted, commit="f" * 40)])
    assert found.aspect == "commit"


def test_a_system_is_named_under_all_its_values() -> None:
    """When one seed of a system was run elsewhere, the system has both values."""
    seeds = [make_run("ver", seed=0), make_run("ver", seed=1, machine={"num_affine_cores": 4})]
    (found,) = find_differences([make_run(), *seeds])
    assert found.sentence() == "cores per GPU: 4 (ver), 16 (ddppo, ver)"


def test_many_systems_make_a_short_sentence() -> None:
    """The most common value comes last, without a list of all who have it, unless someone is in two lists."""
    values = {"2": ["a", "b", "c", "d"], "1": ["appo", "impala"]}
    assert Difference(aspect="epochs", values=values).sentence() == "epochs: 1 (appo, impala), 2 (the 4 others)"
    twice = Difference(aspect="epochs", values=values | {"1": ["a"]})
    assert twice.sentence() == "epochs: 1 (a), 2 (a, b, c, d)"


def test_runs_can_be_called_by_another_name() -> None:
    """Who compares two folders names them, not systems."""
    runs = [make_run(id="before"), make_run(id="after", commit="f" * 40)]
    (found,) = find_differences(runs, name=lambda run: run.id)
    assert found.values == {"0123456789": ["before"], "f" * 10: ["after"]}


def test_a_sweep_that_was_taken_up_elsewhere_is_found_on_any_number_of_gpus() -> None:
    """Runs on 1 and on 8 GPUs that never stand side by side are scaled against each other, so both count."""
    cores = {"num_affine_cores": 4}
    found = told(*find_changes([make_run(gpus=1), make_run(gpus=8, machine=cores, packages={"torch": "2.6"})]))
    assert found["usable cores"] == {"16": ["ddppo-1-0"], "4": ["ddppo-8-0"]}
    assert found["versions"] == {
        "numpy 2.3, torch 2.13": ["ddppo-1-0"],
        "numpy none, torch 2.6": ["ddppo-8-0"],
    }
    assert set(found) == {"usable cores", "versions"}
    assert find_changes([make_run(gpus=1), make_run(gpus=8, machine=dict(MACHINE))]) == []


def test_a_trainer_of_ones_own_is_unlike_systems_of_ours() -> None:
    """Rates of env steps collected are none of env steps learned, and what nobody recorded is unlike everything."""
    own = make_run("mine", figures={"steps_counted": "collected"})
    unknown = {name: value for name, value in own.configuration["scenario"].items() if name in {"kind", "games"}}
    own = own.model_copy(update={"configuration": {**own.configuration, "scenario": unknown}})
    found = told(*find_differences([make_run(), own]))
    assert found["rate counts samples"] == {"learned env steps": ["ddppo"], "collected env steps": ["mine"]}
    for aspect in ("network", "precision", "batch", "epochs", "learning rate", "environments per GPU"):
        assert found[aspect]["not recorded"] == ["mine"]


def test_two_trainers_of_which_nothing_is_known_are_not_alike() -> None:
    """What is not recorded of two systems is a difference between them, and none between two runs of one."""
    one, other = (
        make_run(system).model_copy(update={"configuration": {"system": {}, "scenario": {}}}) for system in ("a", "b")
    )
    found = told(*find_differences([one, other]))
    assert found["work"] == found["network"] == {"not recorded": ["a", "b"]}
    assert Difference(aspect="work", values=found["work"]).sentence() == "work: not recorded (a, b)"
    assert find_differences([one, one]) == []


DEPARTURES = {"initialisation": "orthogonal with gain 1"}
LIBRARY = {"departures": DEPARTURES}


def test_departures_of_a_library_are_named() -> None:
    """Who departs, beside who does as rlbench's own systems; those that depart alike are alike."""
    library, other = make_run("theirs", choices=LIBRARY), make_run("others", choices={"departures": {}})
    found = told(*find_differences([make_run(), library, other]))
    own = "as rlbench's own systems"
    assert found == {"initialisation": {own: ["ddppo", "others"], "orthogonal with gain 1": ["theirs"]}}
    assert find_differences([library, make_run("alike", choices=LIBRARY)]) == []


def test_a_library_that_departs_in_nothing_is_comparable() -> None:
    """Versions of what neither simulates nor computes differ by nature; those of torch and simulators do not."""
    theirs = make_run("theirs", choices={"departures": {}}, packages={"torch": "2.13", "numpy": "1.26", "ray": "2.60"})
    assert find_differences([make_run(), theirs]) == []
    assert find_changes([make_run(), theirs]) == []
    older = make_run("theirs", choices={"departures": {}}, packages={"torch": "2.6"})
    assert told(*find_differences([make_run(), older])) == {
        "versions": {"torch 2.13": ["ddppo"], "torch 2.6": ["theirs"]}
    }


def test_a_correction_matters_beside_a_library() -> None:
    """Among rlbench's own systems it is a choice; a library that does not have it does other work."""
    learn = {"correct": "vtrace"}
    plain = {"correct": "none"}
    assert find_differences([make_run("appo", learn=learn), make_run("sync", learn=plain)]) == []
    theirs = make_run("theirs", learn=plain, choices={"departures": {}})
    found = told(*find_differences([make_run("appo", learn=learn), theirs]))
    assert found == {"correction of stale samples": {"vtrace": ["appo"], "none": ["theirs"]}}
