from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from rlbench.reports.exports.video import SUFFIXES, Video
from tests.reports.exports.seen import pictures_of


def bar(place: int, height: int = 120, width: int = 161) -> npt.NDArray[np.uint8]:
    """A red bar on white, `place` pixels from the left."""
    picture = np.full((height, width, 3), 255, np.uint8)
    picture[:, place : place + 10] = (255, 0, 0)
    return picture


def write(path: Path, pictures: list[npt.NDArray[np.uint8]], per_second: float = 30) -> None:
    """Writes a video."""
    with Video(path, per_second) as video:
        for picture in pictures:
            video.add(picture)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_pictures_come_back_in_their_order(tmp_path: Path, suffix: str) -> None:
    """A video has all pictures, enlarged to an even size, one after the other, at their rate."""
    path = tmp_path / f"out{suffix}"
    write(path, [bar(place) for place in range(0, 120, 10)], 12.5)
    pictures, rate = pictures_of(path)
    assert [picture.shape for picture in pictures] == [(240, 322, 3)] * 12
    assert rate == Fraction(25, 2)
    reds = [np.flatnonzero(picture[120, :, 1] < 128).mean() / 2 for picture in pictures]
    assert np.allclose(reds, [place + 4.75 for place in range(0, 120, 10)], atol=1)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_large_picture_keeps_its_size(tmp_path: Path) -> None:
    """Only small ones are enlarged."""
    write(tmp_path / "out.mp4", [bar(0, 300, 400)])
    assert pictures_of(tmp_path / "out.mp4")[0][0].shape == (300, 400, 3)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_exception_leaves_what_was_there(tmp_path: Path, suffix: str) -> None:
    """A video that is not complete is discarded; an older one of its name stays."""
    path = tmp_path / f"out{suffix}"
    path.write_text("older")
    with pytest.raises(ValueError, match="one size"):
        write(path, [bar(0), bar(10), bar(0, width=80)])
    assert path.read_text() == "older"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_no_picture_is_no_file(tmp_path: Path) -> None:
    """Where nothing was added, nothing is written."""
    with Video(tmp_path / "out.mp4", 30):
        pass
    assert list(tmp_path.iterdir()) == []


def test_pictures_have_one_size(tmp_path: Path) -> None:
    """A picture of another size is refused with both sizes."""
    with pytest.raises(ValueError, match="a picture of 80x60 pixels after some of 161x120"):
        write(tmp_path / "out.mp4", [bar(0), bar(0, 60, 80)])
