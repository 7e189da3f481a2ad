from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlbench.results.records.schema import Counters, Evenness, Reading, RunRecord, WindowRecord
from rlbench.results.records.store import Unreadable
from rlbench.results.summary.findings import find_all
from tests.results.made_records import make_learned_from
from tests.results.summaries import make_run

UNSTEADY: dict[str, Any] = {
    "window": WindowRecord(
        protocol="steady",
        first_iteration=1,
        last_iteration=2,
        begin_s=0,
        end_s=1,
        steady=False,
        reason="iterations left after the warm-up: 2; at least 3 are wanted",
    )
}


def texts(*records: RunRecord, repeated: tuple[RunRecord, ...] = ()) -> list[str]:
    """What is found, in order."""
    return [finding.text for finding in find_all(records, repeated=repeated)]


def failed(seed: int = 0, reason: str = "rank 1 was killed by SIGKILL", **fields: Any) -> RunRecord:
    """A run that failed."""
    return make_run(seed=seed, gpus=8, status=fields.pop("status", "failed"), reason=reason, steps_per_s=None, **fields)


def test_the_worst_comes_first() -> None:
    """Folders that cannot be read, then runs that did not finish, then warnings; each names what it is about."""
    gone = Unreadable(path=Path("/runs/x"), reason="/runs/x/run.json: is damaged")
    found = find_all([make_run(warnings=["w"]), failed()], [gone])
    assert [(each.severity, each.runs) for each in found] == [
        ("unreadable", ["/runs/x"]),
        ("failed", ["ddppo-8-0"]),
        ("warning", ["ddppo-1-0"]),
    ]
    assert found[0].text == "/runs/x/run.json: is damaged"


@pytest.mark.parametrize("status", ["failed", "timed-out", "invalid"])
def test_a_run_that_did_not_finish_says_which_and_why(status: str) -> None:
    """Status, what was run, and the reason: a dead process, a time limit, a broken conservation check."""
    run = failed(reason="conservation broken: 9 collected", status=status)
    which = "ddppo, emulated/open-fridge, heterogeneous, 8 emulated GPUs, seed 0"
    assert texts(run) == [f"{status}: {which}: conservation broken: 9 collected"]


def test_seeds_that_ended_alike_are_one_finding() -> None:
    """A system that fails with every seed is one line; another reason, or other work, is another one."""
    found = find_all([failed(2), failed(0), failed(1, "no space"), failed(3, cell={"workload": "homogeneous"})])
    assert [each.text.partition("GPUs, ")[2] for each in found] == [
        "seeds 0, 2: rank 1 was killed by SIGKILL",
        "seed 1: no space",
        "seed 3: rank 1 was killed by SIGKILL",
    ]
    assert [each.runs for each in found] == [["ddppo-8-2", "ddppo-8-0"], ["ddppo-8-1"], ["ddppo-8-3"]]


def test_a_run_that_was_repeated_is_still_named() -> None:
    """A try that failed before the cell finished is a warning: the cell's figures do not miss it."""
    (found,) = find_all([make_run(gpus=8, id="second")], repeated=[failed(id="first")])
    assert (found.severity, found.runs) == ("warning", ["first"])
    assert found.text.startswith("failed, and was run again: ddppo, ")
    assert found.text.endswith("seed 0: rank 1 was killed by SIGKILL")


def test_no_steady_state_is_named_where_a_rate_stands() -> None:
    """A finished run says why its rate is not steady; one that did not finish has no rate to spoil."""
    assert texts(make_run(figures=UNSTEADY)) == [f"not steady: {UNSTEADY['window'].reason}"]
    assert "not steady" not in "".join(texts(failed(figures=UNSTEADY)))


def test_what_runs_say_alike_is_said_once_with_the_range_of_its_numbers() -> None:
    """91 and 93 % busy cores are one line of two runs; numbers that all share stay as they are."""
    said = "the 2 cores were {} % busy, 1,0{}0 times; raise --time-scale"
    runs = [make_run(seed=seed, warnings=[said.format(busy, seed)]) for seed, busy in ((0, 93), (1, 91), (2, 92.5))]
    (found,) = find_all(runs)
    assert found.text == "the 2 cores were 91 to 93 % busy, 1,000 to 1,020 times; raise --time-scale"
    assert found.runs == ["ddppo-1-0", "ddppo-1-1", "ddppo-1-2"]


def test_what_one_run_says_twice_stays_two_things() -> None:
    """Two ranks that one run has lost are two findings; which rank it was is a name and no quantity."""
    lost = ["rank 1 was killed in iteration 3", "rank 2 was killed in iteration 5"]
    assert texts(make_run(warnings=lost)) == lost
    assert texts(make_run(seed=0, warnings=lost[:1]), make_run(seed=1, warnings=lost[1:])) == lost
    slow = ["a worker took 3 s", "a worker took 5 s"]
    assert texts(make_run(seed=0, warnings=slow), make_run(seed=1, warnings=[slow[1]])) == [
        "a worker took 3 to 5 s",
        slow[1],
    ]
    assert texts(make_run(warnings=[lost[0], lost[0]])) == lost[:1]


def test_runs_of_several_sweeps_are_told_apart() -> None:
    """The same command gives runs the same ids in each sweep, so ids then have their sweep in front."""
    runs = [make_run(sweep=sweep, warnings=["w"]) for sweep in ("a", "b")]
    assert [each.runs for each in find_all(runs)] == [["a/ddppo-1-0", "b/ddppo-1-0"]]


UNEVEN = Evenness(least=0.041, most=0.093, even=0.0625, distance=0.2, p=1e-5)
CHOICES = {"system": {"kind": "EngineSystem", "rollout": {"kind": "Variable"}, "preempt": {"kind": "Optimal"}}}


def test_environments_that_are_learned_from_unevenly_are_named() -> None:
    """How much less and more, which ones, and whether the system's choices do that by design."""
    found = make_learned_from(shares=UNEVEN, kept=None)
    text = (
        "an environment's share is at least 4.1 % and at most 9.3 % of the samples, where 6.2 % would be even"
        "; ver takes the env steps that end first and cuts stragglers, by design"
    )
    assert texts(make_run("ver", learned_from=found, configuration=CHOICES)) == [
        f"fast environments are learned from more: {text}"
    ]
    for favoured, who in ((-0.9, "slow"), (0.1, "some"), (None, "some")):
        uneven = found.model_copy(update={"fast_favoured": favoured})
        (said,) = texts(make_run("mine", learned_from=uneven, configuration={}))
        assert said == f"{who} environments are learned from more: {text.partition('; ')[0]}"


def test_what_chance_may_give_or_hardly_matters_is_no_finding() -> None:
    """Neither shares that differ as much by chance, nor such as differ by less than a hundredth, however certain."""
    for figures in ({"p": 0.01}, {"p": None}, {"distance": 0.009}):
        shares = UNEVEN.model_copy(update=figures)
        assert texts(make_run(learned_from=make_learned_from(shares=shares, kept=shares))) == []
    assert texts(make_run(learned_from=None)) == []


def test_agents_that_leave_early_are_no_finding() -> None:
    """Shares of agents follow from how long they stay; what is discarded of each is another matter."""
    counters = Counters(env_steps=10, agent_steps=20, learned=20)
    kept = Evenness(least=0.5, most=1.0, even=0.75, distance=0.2, p=0.0)
    unlike = make_learned_from(shares=UNEVEN, kept=None)
    assert texts(make_run(learned_from=unlike, counters=counters)) == []
    (said,) = texts(make_run(learned_from=make_learned_from(shares=UNEVEN, kept=kept), counters=counters))
    assert said.startswith("samples are not discarded alike: of one agent at least 50 %")


def test_samples_that_are_not_discarded_alike_are_named() -> None:
    """Beside the shares: how many of the samples of an environment were learned."""
    kept = Evenness(least=0.5, most=1.0, even=0.75, distance=0.2, p=0.0)
    shares = Evenness(least=0.5, most=0.5, even=0.5, distance=0.0, p=1.0)
    alike, told = texts(make_run(learned_from=make_learned_from(shares=shares, kept=kept)))[0].split(": ")
    assert alike == "samples are not discarded alike"
    assert told == "of one environment at least 50 % and at most 100 % were learned, of all 75 %; the rest was too old"


def on(device: str, ranks: int = 1, busy: float | None = None, **machine: Any) -> RunRecord:
    """A run on a device, on 16 cores of which `busy` per cent were busy."""
    figures = {"cpu_percent": Reading(value=busy), "emulated": device == "emulated", "predicted": device == "predicted"}
    return make_run(gpus=ranks, cell={"device": device}, figures=figures, machine=machine)


def test_cores_that_are_too_few_are_named() -> None:
    """Of 16 cores 15 are 94 % busy, which is too much; 14 are not; of a quota of 8 cores 7.5 are."""
    said = "the {} cores were 94 % busy: they are oversubscribed, processes wait for one"
    assert texts(on("cuda", busy=1500)) == texts(on("cpu", busy=1500)) == [said.format(16)]
    assert texts(on("cuda", busy=94, cpu_quota_cores=1.0)) == [
        "the 1 core was 94 % busy: it is oversubscribed, processes wait for one"
    ]
    assert texts(on("cuda", busy=1400)) == []
    assert texts(on("cuda", busy=750, cpu_quota_cores=8.0)) == [said.format(8)]
    assert texts(on("emulated", busy=1500), on("cuda"), on("predicted", busy=1500)) == []  # an emulated run says it


def test_devices_that_ranks_share_are_named() -> None:
    """More ranks than GPUs, or on the CPU than cores, measure how they share; emulated GPUs need no hardware."""
    assert texts(on("cuda", ranks=4)) == ["4 ranks share 2 GPUs"]
    assert texts(on("cpu", ranks=32)) == ["32 CPU ranks share 16 cores"]
    assert texts(on("cuda", ranks=2)) == texts(on("cpu", ranks=16)) == texts(on("emulated", ranks=32)) == []


def test_gpus_that_others_use_or_heat_holds_back_are_named() -> None:
    """What was on a GPU before the sweep began is somebody else's; a container may hide whose, but not the memory."""
    gpu = {
        "index": 1,
        "name": "V100",
        "memory_bytes": 1000,
        "memory_used_bytes": 50,
        "process_ids": [],
        "slowdowns": [],
    }
    assert texts(on("cuda", gpus=[gpu])) == []
    assert texts(on("cuda", gpus=[gpu | {"slowdowns": ["heat (driver)"]}])) == [
        "GPU 1 (V100) was held back by heat (driver) when the sweep began"
    ]
    foreign = "GPU 1 (V100) had {} foreign processes when the sweep began, and {} % of its memory was in use"
    assert texts(on("cuda", gpus=[gpu | {"process_ids": [7, 8]}])) == [foreign.format(2, 5)]
    assert texts(on("cuda", gpus=[gpu | {"memory_used_bytes": 60}])) == [foreign.format(0, 6)]
    assert texts(on("cpu", gpus=[gpu | {"process_ids": [7, 8]}])) == []


def test_a_sweep_that_went_on_elsewhere_is_named() -> None:
    """Runs on other numbers of GPUs are scaled against each other: with which versions each was made is said."""
    runs = [make_run(gpus=1), make_run(gpus=2), make_run(gpus=8, packages={"torch": "2.6", "numpy": "2.3"})]
    (found,) = find_all(runs)
    said = "versions: torch 2.13 (2 runs), torch 2.6 (1 run)"
    assert found.text == f"the runs of a sweep differ in {said}; its scaling factors and means over seeds mix them"
    assert (found.severity, found.runs) == ("warning", ["ddppo-8-0"])
    assert texts(*runs[:2], make_run(gpus=8, sweep="other", packages={})) == []
    assert len(texts(*runs[:2], failed(packages={}))) == 1  # what failed is in no figure
