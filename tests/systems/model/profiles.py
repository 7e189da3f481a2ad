"""Profiles for tests of the model: `open-fridge` with some of its values replaced."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from rlbench.scenarios.emulated.profile import PROFILES_FOLDER, Profile

Changes = dict[str, dict[str, Any]]

BUSY: Changes = {
    "collect": {"num_envs": 4, "rollout_steps": 16},
    "collision": {"share": 0.1},
    "episode": {"mean_steps": 12.0, "reset_ms": 0.0},
    "cpu": {"cores_per_gpu": 3, "actor_infer_ms": 5.0},
    "gpu": {"prepare_ms": 40.0, "learn_fixed_ms": 3.0, "learn_item_ms": 1.0},
    "network": {
        "synchronize_ms": 20.0,
        "synchronize_doubling_ms": 5.0,
        "latency_ms": 1.0,
        "bandwidth_mb_per_s": 1000.0,
    },
}
"""Small, and all that can wait waits for something: a core, a GPU, a link, other ranks."""
RESETTING: Changes = BUSY | {
    "episode": {"mean_steps": 12.0, "reset_ms": 30.0},
    "gpu": BUSY["gpu"] | {"render_ms": 0.0},
}
"""Resets take time, and rendering none. With both, two replies may come at one moment, in nobody's order: after a reset
the GPU repeats what it did just as long before."""

WITHOUT_GPU: Changes = BUSY | {
    "cpu": BUSY["cpu"] | {"learn_cores": 2},
    "gpu": BUSY["gpu"] | {"render_ms": 0.5, "render_while_learning_factor": 1.0, "learn_while_rendering_factor": 1.0},
}
"""Inference and learning hold cores of the environments."""
IN_BATCHES: Changes = BUSY | {
    "collect": {"num_envs": 12, "rollout_steps": 8, "envs_per_batch": 3},
    "batch": {"sizes": [1, 2, 6], "step_ms": [4.0, 7.0, 17.0], "sigma": 0.5},
    "gpu": BUSY["gpu"] | {"render_ms": 0.3},
}
"""Four batches of three environments, whose calls differ much, on three cores."""
BATCHES_WITHOUT_GPU: Changes = IN_BATCHES | {
    "cpu": BUSY["cpu"] | {"learn_cores": 2},
    "gpu": IN_BATCHES["gpu"] | {"render_while_learning_factor": 1.0, "learn_while_rendering_factor": 1.0},
}
"""Inference and learning hold cores of them."""
A_CORE_EACH: Changes = WITHOUT_GPU | {"cpu": WITHOUT_GPU["cpu"] | {"cores_per_gpu": 4, "learn_cores": 4}}
"""The environments have a core each, as long as the rank needs none."""


def write_profile(folder: Path, name: str, *changes: Changes) -> str:
    """Writes a profile; returns the scenario that it is."""
    tables = tomllib.loads((PROFILES_FOLDER / "open-fridge.toml").read_text())
    for change in changes:
        for table, values in change.items():
            assert values.keys() <= getattr(Profile.model_fields[table].annotation, "model_fields", {}).keys()
            tables[table] = tables.get(table, {}) | values
    lines = [f'about = "{name}"']
    for table, values in tables.items():
        if isinstance(values, dict):
            lines += [f"[{table}]", *(f"{key} = {value}" for key, value in values.items())]
    path = folder / f"{name}.toml"
    path.write_text("\n".join(lines))
    return f"emulated/{path}"
