"""What environments give that breaks a rule: the value, and what must be said of it."""

from __future__ import annotations

from typing import Any

import numpy as np

VECTOR = np.zeros(3, np.float32)
FINITE = "it must be finite"
REAL = "it must be a real number"
WHOLE = "it must be a whole number from 0 to"
SHARE = "it must be a number from 0 to 1"
ANSWER = "it must be (observation, reward, terminated, truncated, info)"
DTYPE = "observation 'vector' has dtype {}: the scenario states float32"
REWARDS: dict[str, tuple[Any, str]] = {
    "nan": (float("nan"), FINITE),
    "infinite": (float("inf"), FINITE),
    "float32-infinite": (np.float32("-inf"), FINITE),
    "1e300": (1e300, "it must be a number that float32 can hold"),
    "huge-int": (10**400, "it must be a number that float32 can hold"),
    "complex": (1 + 2j, REAL),
    "complex64": (np.complex64(1), REAL),
    "text": ("1.5", REAL),
    "none": (None, REAL),
    "two": (np.ones(2), REAL),
    "list": ([1.0], REAL),
    "object": (np.array([None]), REAL),
    "text-array": (np.array("1.5"), REAL),
}
INFOS: dict[str, tuple[dict[str, Any], str]] = {
    "frames-2-to-62": ({"num_frames": 2**62}, WHOLE),
    "frames-2-to-100": ({"num_frames": 2**100}, WHOLE),
    "frames-negative": ({"num_frames": -1}, WHOLE),
    "frames-fraction": ({"num_frames": 1.5}, WHOLE),
    "frames-text": ({"num_frames": "x"}, WHOLE),
    "frames-bool": ({"num_frames": True}, WHOLE),
    "frames-none": ({"num_frames": None}, WHOLE),
    "raw-nan": ({"raw_reward": float("nan")}, FINITE),
    "raw-text": ({"raw_reward": "1"}, REAL),
    "raw-1e300": ({"raw_reward": 1e300}, "it must be a number that float32 can hold"),
    "success-5": ({"success": 5.0}, SHARE),
    "success-negative": ({"success": -0.1}, SHARE),
    "success-text": ({"success": "1"}, SHARE),
    "success-none": ({"success": None}, SHARE),
    "spl-2": ({"spl": 2}, SHARE),
    "spl-complex": ({"spl": 1j}, SHARE),
    "spl-infinite": ({"spl": float("inf")}, SHARE),
}
OBSERVATIONS: dict[str, tuple[Any, str]] = {
    "int64": ({"vector": np.zeros(3, np.int64)}, DTYPE.format("int64")),
    "list": ({"vector": [0, 1, 2]}, DTYPE.format("int64")),
    "complex": ({"vector": np.zeros(3, complex)}, DTYPE.format("complex128")),
    "text": ({"vector": np.array(["0", "1", "2"])}, DTYPE.format("<U1")),
    "object": ({"vector": np.array([None] * 3)}, DTYPE.format("object")),
    "nan": ({"vector": np.array([0, np.nan, 0], np.float32)}, "observation 'vector' holds nan: it must be finite"),
    "too-large": ({"vector": np.array([0, 1e300, 0])}, "observation 'vector' holds 1e+300, float32 holds at most"),
    "shape": ({"vector": np.zeros(4, np.float32)}, "observation 'vector' has shape (4,): the scenario states (3,)"),
    "scalar": ({"vector": 0.0}, "observation 'vector' has shape (): the scenario states (3,)"),
    "other-key": ({"scalar": VECTOR}, "the observation has no 'vector'"),
    "empty": ({}, "the observation has no 'vector'"),
    "none": (None, "the observation is None (NoneType): it must be a dict"),
    "array": (VECTOR, "it must be a dict with 'vector'"),
    "text-itself": ("vector", "it must be a dict with 'vector'"),
}
ANSWERS: dict[str, tuple[Any, str]] = {
    "four": (({"vector": VECTOR}, 0.0, False, {}), ANSWER),
    "six": (({"vector": VECTOR}, 0.0, False, False, {}, None), ANSWER),
    "none": (None, ANSWER),
    "info-none": (({"vector": VECTOR}, 0.0, False, False, None), ANSWER),
    "info-list": (({"vector": VECTOR}, 0.0, False, False, []), ANSWER),
    "flag-array": (({"vector": VECTOR}, 0.0, np.zeros(2), False, {}), "gave terminated = array([0., 0.]) (ndarray)"),
    "flag-none": (({"vector": VECTOR}, 0.0, None, False, {}), "gave terminated = None (NoneType): it must be a bool"),
    "flag-text": (({"vector": VECTOR}, 0.0, False, "no", {}), "gave truncated = 'no' (str): it must be a bool"),
    "flag-2": (({"vector": VECTOR}, 0.0, 2, False, {}), "gave terminated = 2: it must be a bool"),
}
RESETS: dict[str, tuple[Any, str]] = {
    "bare": ({"vector": VECTOR, "a": 0, "b": 0}, "it must be (observation, info)"),
    "none": (None, "it must be (observation, info)"),
}
HUGE = 3e38
