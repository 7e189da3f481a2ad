"""Which figures rest on what a profile assumes: keys that nobody has measured, as far as a run uses them.

A run uses a key if what it stands for happens in it: an actor's inference where the policy acts in the environment
workers, contention where ranks learn while they collect, the network where there are several ranks, steps of single
environments where these are in no batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlbench.results.records.schema import RunRecord
from rlbench.results.summary.bottleneck import CONCURRENT

ALONE = frozenset({"episode.sigma", "episode.reset_ms"})
CONTENTION = frozenset({"gpu.render_while_learning_factor", "gpu.learn_while_rendering_factor"})


def assumed_keys(record: RunRecord) -> list[str]:
    """The assumed keys that a run used, in the order of its profile; empty where it has none."""
    profile = _part(_part(record.configuration, "scenario"), "profile")
    named = profile.get("assumed")
    keys = [key for key in named if isinstance(key, str)] if isinstance(named, (list, tuple)) else []
    return [key for key in keys if _is_used(key, record)]


def _is_used(key: str, record: RunRecord) -> bool:
    system, cell = _part(record.configuration, "system"), record.cell
    table = key.partition(".")[0]
    if table == "network":
        return cell.gpus > 1
    if table in {"step", "collision"} or key in ALONE:
        size = _part(record.configuration, "scenario").get("envs_per_batch", 1)
        return not (isinstance(size, int) and size > 1)
    if table == "heterogeneous":
        return cell.workload == "heterogeneous"
    if key == "cpu.actor_infer_ms":
        return bool(_part(system, "collect").get("kind") == "ActorSide")
    if key in CONTENTION:
        return _part(system, "overlap").get("kind") in CONCURRENT
    return True


def _part(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = whole.get(name)
    return part if isinstance(part, dict) else {}
