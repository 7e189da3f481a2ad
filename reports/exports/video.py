"""Pictures as a video, MP4 or GIF, written one after the other: no more than a few are in memory at a time.

PyAV has FFmpeg's libraries, so the encoder is in this process, and nothing is left when it is killed but the file that
was being written (`.new-…`). Letters: H, W height and width of a picture in pixels.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rlbench.results.reading.outputs import NEW_PREFIX

if TYPE_CHECKING:
    import numpy.typing as npt

    Picture = npt.NDArray[np.uint8]

SUFFIXES = (".mp4", ".gif")
LEAST_SIDE = 240
"""Smaller pictures are enlarged by a whole factor until their shorter side has about so many pixels."""
QUALITY = {"crf": "20"}
"""Of H.264: hard to tell from the pictures."""


class Video:
    """A video that gets its name when it is complete; a context, which discards it if there is an exception."""

    def __init__(self, path: Path, per_second: float) -> None:
        """Makes the file at the first picture; `path` ends in one of `SUFFIXES`, `per_second` pictures are shown."""
        self._path, self._rate = path, Fraction(per_second).limit_denominator(1000)
        self._unfinished = path.with_name(f"{NEW_PREFIX}{secrets.token_hex(8)}{path.suffix}")
        self._shape: tuple[int, ...] = ()
        self._encoder: _Encoder | None = None
        self.num_pictures = 0

    def add(self, picture: Picture) -> None:
        """Adds a picture, [H, W, 3]: red, green, blue. Raises ValueError if it has another size than the first."""
        if self._encoder is None:
            self._shape = picture.shape
            self._factor = max(1, round(LEAST_SIDE / min(picture.shape[:2])))
            self._encoder = _Encoder(self._unfinished, self._rate, self._shown(picture).shape)
        if picture.shape != self._shape:
            was, now = ("x".join(map(str, shape[1::-1])) for shape in (self._shape, picture.shape))
            raise ValueError(f"a picture of {now} pixels after some of {was}: all must have one size")
        self._encoder.add(self._shown(picture), self.num_pictures)
        self.num_pictures += 1

    def _shown(self, picture: Picture) -> Picture:
        """A picture, enlarged, with an even height and width, which H.264 asks for."""
        large = picture.repeat(self._factor, axis=0).repeat(self._factor, axis=1)
        height, width = large.shape[:2]
        return np.pad(large, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")

    def __enter__(self) -> Self:
        """Does nothing."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Ends the file and gives it its name, unless there was an exception, or no picture."""
        try:
            if self._encoder is not None:
                self._encoder.close(discard=kind is not None)
                if kind is None:
                    self._unfinished.replace(self._path)
        finally:
            self._unfinished.unlink(missing_ok=True)


class _Encoder:
    """FFmpeg's muxer and encoder; for GIF behind filters that give each picture a palette of its own."""

    def __init__(self, path: Path, rate: Fraction, shape: tuple[int, ...]) -> None:
        import av

        self._rate, is_gif = rate, path.suffix == ".gif"
        self._file: Any = av.open(str(path), "w")
        self._stream = self._file.add_stream("gif" if is_gif else "libx264", rate=rate)
        self._stream.height, self._stream.width = shape[:2]
        self._stream.pix_fmt = "pal8" if is_gif else "yuv420p"
        if not is_gif:
            self._stream.options = QUALITY
        self._palettes = _Palettes(shape, rate) if is_gif else None

    def add(self, picture: Picture, number: int) -> None:
        import av

        frame: Any = av.VideoFrame.from_ndarray(picture, format="rgb24")
        frame.pts, frame.time_base = number, 1 / self._rate
        for each in [frame] if self._palettes is None else self._palettes.of(frame):
            self._file.mux(self._stream.encode(each))

    def close(self, *, discard: bool) -> None:
        """Writes what is still to be written; of a file that is discarded, only as far as that can be done."""
        import av

        try:
            with suppress(*((av.error.FFmpegError,) if discard else ())):
                for each in () if self._palettes is None else self._palettes.of(None):
                    self._file.mux(self._stream.encode(each))
                self._file.mux(self._stream.encode(None))
        finally:
            self._file.close()


class _Palettes:
    """The filters `split`, `palettegen` and `paletteuse`, which keep no more than a picture."""

    def __init__(self, shape: tuple[int, ...], rate: Fraction) -> None:
        import av.filter

        graph: Any = av.filter.Graph()
        source = graph.add_buffer(width=shape[1], height=shape[0], format="rgb24", time_base=1 / rate)
        split = graph.add("split")
        made, used = graph.add("palettegen", "stats_mode=single"), graph.add("paletteuse", "new=1")
        source.link_to(split)
        split.link_to(used, 0, 0)
        split.link_to(made, 1, 0)
        made.link_to(used, 0, 1)
        used.link_to(graph.add("buffersink"))
        graph.configure()
        self._graph = graph

    def of(self, frame: Any) -> Iterator[Any]:
        """The pictures that are done once another has come, or None at the end."""
        import av

        self._graph.push(frame)
        with suppress(av.error.BlockingIOError, av.error.EOFError):
            while True:
                yield self._graph.pull()
