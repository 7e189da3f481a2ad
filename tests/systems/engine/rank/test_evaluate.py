from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

from rlbench.harness.contract.device import Seat
from rlbench.harness.contract.envs import env_seeds
from rlbench.harness.devices.kinds import CpuDevice
from rlbench.harness.plan.registry import load_system
from rlbench.harness.processes.raised import in_a_line
from rlbench.systems.engine.rank.evaluate import Evaluation, evaluate, evaluation_seeds
from rlbench.systems.engine.rank.rank_loop import POLICY_FILE, RANK_POLICY_FILE
from rlbench.systems.gossip.spec import SPEC as GOSSIP
from rlbench.systems.policies.policy import Policy, build_policy
from tests.systems.actions import choices
from tests.systems.engine.cells import profile
from tests.systems.engine.counting import LENGTHS, SPACE, CountingEnv, CountingScenario
from tests.systems.engine.ranks import run_cell

NUM_ENVS = len(LENGTHS)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A file with weights of the counting scenario's policy."""
    path = tmp_path / "weights.pt"
    torch.save(build_policy("small", SPACE, choices(4), seed=3).state_dict(), path)
    return path


def evaluated(weights: Path, seed: int = 0, num_episodes: int = 8) -> Evaluation:
    """An evaluation on the counting scenario."""
    return evaluate(CountingScenario(), seed, weights, num_episodes, CpuDevice(2))


@pytest.mark.parametrize(("asked", "played"), [(1, NUM_ENVS), (NUM_ENVS, NUM_ENVS), (NUM_ENVS + 1, 2 * NUM_ENVS)])
def test_every_environment_plays_equally_many_episodes(weights: Path, asked: int, played: int) -> None:
    """However many are asked for, the mean length is the environments', of which one has far longer episodes."""
    evaluation = evaluated(weights, num_episodes=asked)
    assert evaluation.num_episodes == played
    length = evaluation.figures["length"]
    assert length.mean == pytest.approx(sum(LENGTHS) / NUM_ENVS)
    variance = sum((one - length.mean) ** 2 for one in LENGTHS) * (played / NUM_ENVS) / (played - 1)
    assert length.standard_error == pytest.approx(math.sqrt(variance / played))


def test_the_policy_sees_what_it_saw_in_training(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Episodes start where they do, the previous action is the last, the state what `act` last returned for it."""
    act, states, num_steps = Policy.act, dict[int, torch.Tensor](), 0

    def watched(self: Policy, obs: Mapping[str, Any], prev: Any, starts: Any, state: Any, generator: Any) -> Any:
        nonlocal num_steps
        playing = [env for env, length in enumerate(LENGTHS) if num_steps < 2 * length]
        where = obs["where"]
        assert where.dtype == torch.float32
        assert where[:, 0].tolist() == [num_steps % LENGTHS[env] for env in playing]
        assert prev.dtype == torch.int64
        assert starts.tolist() == [step == 0 for step in where[:, 0].tolist()]
        assert prev[~starts, 0].tolist() == where[~starts, 1].tolist()
        assert all(torch.equal(row, states[env]) for env, row in zip(playing, state, strict=True) if env in states)
        answer = act(self, obs, prev, starts, state, generator)
        states.update(zip(playing, answer[3].clone(), strict=True))
        num_steps += 1
        return answer

    monkeypatch.setattr(Policy, "act", watched)
    evaluated(weights)
    assert num_steps == 2 * max(LENGTHS)
    assert any(state.abs().sum() > 0 for state in states.values())


def test_the_seed_and_the_weights_decide(weights: Path) -> None:
    """The same seed and weights give the same figures, another seed or other weights give others."""
    first = evaluated(weights)
    assert repr(evaluated(weights)) == repr(first)  # by their text: NaN is not equal to itself
    assert evaluated(weights, seed=1).figures["return"] != first.figures["return"]
    state = {name: 50 * weight for name, weight in torch.load(weights).items()}
    torch.save(state, weights)
    assert evaluated(weights).figures["return"] != first.figures["return"]


def test_metrics_that_a_scenario_does_not_have(weights: Path) -> None:
    """Success and SPL are NaN where episodes have none."""
    figures = evaluated(weights).figures
    assert [name for name, estimate in figures.items() if math.isnan(estimate.mean)] == ["success", "spl"]


def test_a_single_episode_has_no_standard_error(weights: Path) -> None:
    """The mean is its own value, its standard error NaN."""
    evaluation = evaluate(CountingScenario(num_envs=1), 0, weights, 1, CpuDevice(2))
    length = evaluation.figures["length"]
    assert (evaluation.num_episodes, length.mean) == (1, LENGTHS[0])
    assert math.isnan(length.standard_error)


def test_environments_are_not_those_of_training() -> None:
    """No environment of any rank of a run has the seed of one in which that run is evaluated."""
    for seed in (0, 1, 2**32 - 1):
        seeds = evaluation_seeds(seed, 17)
        training = {one for rank in range(64) for one in env_seeds(seed, rank, 16)}
        assert len(set(seeds)) == 17
        assert not training & set(seeds)
        assert evaluation_seeds(seed, 9) == seeds[:9]


class RaisingEnv(CountingEnv):
    """Raises at one call."""

    def __init__(self, call: str, error: BaseException) -> None:
        super().__init__(4, final=True)
        setattr(self, call, self._fail)
        self._error = error

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise self._error


@dataclass(frozen=True, kw_only=True, slots=True)
class RaisingScenario(CountingScenario):
    """The counting scenario, whose second environment raises."""

    call: str
    error: BaseException

    def make_env(self, seat: Seat) -> gymnasium.Env[dict[str, Any], int]:
        """Makes environment `seat.index`."""
        if seat.index != 1:
            return CountingEnv(LENGTHS[seat.index], final=False)
        if self.call == "make_env":
            raise self.error
        return RaisingEnv(self.call, self.error)


HOSTILE = [LookupError("no wall"), SystemExit("bye"), BrokenPipeError("x"), GeneratorExit(), ValueError("\x1b[31m")]


@pytest.mark.parametrize("error", HOSTILE, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("call", ["make_env", "reset", "step"])
def test_whatever_an_environment_raises_is_a_line(weights: Path, call: str, error: BaseException) -> None:
    """With the environment, the run and the exception."""
    with pytest.raises(ValueError, match=rf"^environment 1 of {weights.parent.name} raised") as told:
        evaluate(RaisingScenario(call=call, error=error), 0, weights, 1, CpuDevice(2))
    assert str(told.value).endswith(f"raised {in_a_line(error)}")


@pytest.mark.parametrize("call", ["make_env", "reset", "step", "close"])
def test_an_interruption_ends_an_evaluation(weights: Path, call: str) -> None:
    """One that an environment raises is like that of a Ctrl-C meanwhile."""
    with pytest.raises(KeyboardInterrupt):
        evaluate(RaisingScenario(call=call, error=KeyboardInterrupt()), 0, weights, 1, CpuDevice(2))


@pytest.mark.parametrize("error", HOSTILE, ids=lambda error: type(error).__name__)
def test_a_close_that_raises_is_a_warning(
    weights: Path, capsys: pytest.CaptureFixture[str], error: BaseException
) -> None:
    """On stderr, and what was played is told."""
    played = evaluate(RaisingScenario(call="close", error=error), 0, weights, 1, CpuDevice(2))
    assert played.num_episodes == NUM_ENVS
    whom = f"environment 1 of {weights.parent.name}"
    assert capsys.readouterr() == ("", f"rlbench: warning: {whom} raised {in_a_line(error)} when it was closed\n")


@pytest.mark.parametrize("observation", [None, {}, {"where": "x"}, {"where": [1, 2]}], ids=repr)
def test_an_observation_that_cannot_be_used_is_named(
    weights: Path, monkeypatch: pytest.MonkeyPatch, observation: Any
) -> None:
    """With the environment that gave it, and the key."""
    monkeypatch.setattr(CountingEnv, "_observe", lambda *_: observation)
    with pytest.raises(ValueError, match=r"^environment 0 gave an observation whose 'where' cannot be used: "):
        evaluated(weights)


@pytest.mark.parametrize("content", [b"", b"no weights", b"PK\x03\x04"])
def test_a_damaged_file_is_named(weights: Path, content: bytes) -> None:
    """Whatever is in the file, the error names it and says what to do."""
    weights.write_bytes(content)
    with pytest.raises(ValueError, match=r"weights\.pt: is damaged, or not of .*; run that cell again"):
        evaluated(weights)


@pytest.mark.parametrize("program", [b"cos\nsystem\n(S'exit 1'\ntR.", b"\x80\x80}."])
@pytest.mark.parametrize("packed", [True, False])
def test_weights_that_are_a_program_are_refused(weights: Path, packed: bool, program: bytes) -> None:
    """Neither an archive that holds one nor a pickle by itself is run; nor does torch print what it thinks of it."""
    if packed:
        with zipfile.ZipFile(weights, "w") as archive:
            archive.writestr("weights/data.pkl", program)
            archive.writestr("weights/version", "3")
            archive.writestr("weights/byteorder", "little")
    else:
        weights.write_bytes(program)
    with pytest.raises(ValueError, match=r"weights\.pt: is damaged, or not of .*; run that cell again") as caught:
        evaluated(weights)
    assert "\n" not in str(caught.value)


def test_weights_that_would_unpack_to_more_are_refused(weights: Path) -> None:
    """A part of an archive that is compressed may be a thousand times as large: `torch.save` writes none."""
    with zipfile.ZipFile(weights, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("weights/data/0", b"\0" * 10_000_000)
    with pytest.raises(ValueError, match=r"weights\.pt: is damaged, .*compressed parts"):
        evaluated(weights)


def test_weights_of_another_policy_are_refused(weights: Path) -> None:
    """A state dict must be of the scenario's policy."""
    torch.save(build_policy("small", SPACE, choices(5), seed=0).state_dict(), weights)
    with pytest.raises(ValueError, match="not of the policy small of counting"):
        evaluated(weights)


def test_policies_are_called_what_they_are() -> None:
    """Gossip's final policy is the mean of the ranks that were left, and the first of those kept its own beside it."""
    assert GOSSIP.policies([0, 1, 2]) == {"policy.pt": "mean of 3 ranks", "policy-rank0.pt": "rank 0 alone"}
    assert GOSSIP.policies([1, 2]) == {"policy.pt": "mean of 2 ranks", "policy-rank1.pt": "rank 1 alone"}
    assert GOSSIP.policies([0])["policy.pt"] == "final"
    sync: Any = load_system("sync", {})
    assert sync.policies([0, 1])["policy.pt"] == "final"


@pytest.mark.parametrize(
    ("system", "gpus", "is_own_kept"), [("easgd", 2, True), ("sync", 2, False), ("gossip", 1, False)]
)
def test_a_rank_leaves_its_own_weights_where_it_has_some(
    tmp_path: Path, system: str, gpus: int, is_own_kept: bool
) -> None:
    """Beside the policy that ranks agree on, one of them leaves its own, unless all are equal or it is alone."""
    settings = {"num_envs": "2", "rollout_steps": "8"}
    run = run_cell(tmp_path, "run", profile(tmp_path, step_ms=0.1), settings, system=system, gpus=gpus)
    own = run.folder / RANK_POLICY_FILE.format(0)
    assert sorted(path.name for path in run.folder.glob("*.pt")) == sorted([POLICY_FILE, *([own.name] * is_own_kept)])
    if is_own_kept:
        final, alone = run.weights(), torch.load(own)
        assert final.keys() == alone.keys()
        assert not all(torch.equal(weight, alone[name]) for name, weight in final.items())
