"""Videos, read back."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt


def pictures_of(path: Path) -> tuple[list[npt.NDArray[np.uint8]], Fraction]:
    """The pictures of a video, each [H, W, 3], and how many there are in a second."""
    with av.open(str(path)) as file:
        rate: Fraction = file.streams.video[0].average_rate
        return [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)], rate
