"""How systems and spans look: a colour, marker and dash per system, the same in all reports; colours of spans.

The colours are those of Okabe and Ito, which colour-blind people can tell apart. Orange and sky blue are darkened, and
yellow and black left out; grey, violet, olive and brown are added. Each has a contrast of at least 3 to 1 with both
backgrounds of the page. Markers and dashes differ between systems too. Dotted lines and open markers are for
predictions, crosses for published figures.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlbench.results.records import labels
from rlbench.results.summary.document import Kind, Summary

COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#C58700", "#2E96D6", "#808080"),
    *("#7A5CC8", "#6E8B00", "#8A6A4F"),
)
SYMBOLS = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "cross",
    "x",
    "triangle-down",
    "star",
    "pentagon",
    "hexagram",
)
OURS = ("sync", "ddppo", "ver", "appo", "htsrl", "gossip", "nover", "impala", "easgd", "downpour")
LIBRARIES = (
    *("sample-factory", "sb3-ppo", "rllib-appo", "rllib-impala", "torchrl-ppo", "habitat-ddppo", "habitat-ver"),
)
"""Systems whose looks are laid down here; those of others follow from their names."""
DASHES = ("solid", "dash", "dashdot", "longdash", "longdashdot", "6px,3px")
"""Dashes of systems; dotted lines are reserved for predictions."""
NUM_STYLES = math.lcm(len(COLOURS), len(SYMBOLS), len(DASHES))
NEUTRAL = "#808080"
"""Colour of lines that are no system: the ideal, a threshold."""
NO_COLOUR = "rgba(0,0,0,0)"
PUBLISHED = "x-thin"
"""Marker of published figures."""
LINE_LETTERS = 22
"""Labels in a chart that are longer than this continue on the next line."""
MOST_LETTERS = 2 * LINE_LETTERS
"""Maximum length of a part of a label without a better place to break it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Style:
    """How a system is drawn."""

    colour: str
    symbol: str
    dash: str

    def line(self, kind: Kind) -> dict[str, Any]:
        """A line; dotted if it is predicted."""
        return {"color": self.colour, "width": 2, "dash": "dot" if kind == "predicted" else self.dash}

    def marker(self, kind: Kind) -> dict[str, Any]:
        """A marker; open if it is predicted."""
        symbol = f"{self.symbol}-open" if kind == "predicted" else self.symbol
        return {"color": self.colour, "symbol": symbol, "size": 9, "line": {"width": 2, "color": self.colour}}

    def bar(self, kind: Kind) -> dict[str, Any]:
        """A bar; hatched and open if it is predicted."""
        if kind != "predicted":
            return {"color": self.colour}
        pattern = {"shape": "/", "fgcolor": self.colour, "bgcolor": NO_COLOUR}
        return {"color": NO_COLOUR, "line": {"color": self.colour, "width": 2}, "pattern": pattern}

    @property
    def published(self) -> dict[str, Any]:
        """The marker of a published figure."""
        return {
            "color": self.colour,
            "symbol": PUBLISHED,
            "size": 10,
            "line": {"width": 2.5, "color": self.colour},
        }

    def shade(self, opacity: float) -> str:
        """The colour with an opacity below 1."""
        red, green, blue = (int(self.colour[at : at + 2], 16) for at in (1, 3, 5))
        return f"rgba({red},{green},{blue},{opacity})"


def styles(summary: Summary) -> dict[str, Style]:
    """The style of each system of a summary.

    It depends on the name alone, but for the colour of a system that is not in `OURS` or `LIBRARIES`: where another
    system of the summary has that, it is the next free one, as long as there is one.
    """
    systems = dict.fromkeys(labels.system(run.cell) for run in summary.runs)
    systems |= dict.fromkeys(cell.system for cell in summary.cells)
    systems |= dict.fromkeys(row.system for series in summary.history for row in series.rows)
    known = [*OURS, *LIBRARIES]
    numbers = {name: known.index(name) for name in systems if name in known}
    for name in sorted(name for name in systems if name not in numbers):
        taken = {number % len(COLOURS) for number in numbers.values()}
        number = zlib.crc32(name.encode(errors="surrogateescape")) % NUM_STYLES
        while number % len(COLOURS) in taken and len(taken) < len(COLOURS):
            number += 1
        numbers[name] = number
    return {name: style(numbers[name]) for name in systems}


def style(number: int) -> Style:
    """One of the styles; `NUM_STYLES` of them differ."""
    return Style(
        colour=COLOURS[number % len(COLOURS)],
        symbol=SYMBOLS[number % len(SYMBOLS)],
        dash=DASHES[number % len(DASHES)],
    )


SPANS = {
    "simulate": ("#4A80A8", ""),
    "reset": ("#7A72B0", ""),
    "infer": ("#A8843F", ""),
    "schedule": ("#6B7A88", ""),
    "learn": ("#46906A", ""),
    "communicate": ("#AD6494", ""),
    "wait:straggler": ("#C0564C", "/"),
    "wait:learner": ("#9272C4", "\\"),
    "wait:rollout": ("#85882F", "x"),
    "wait:inference": ("#868C92", "."),
    "other": ("#7D7D7D", ""),
}
"""Colour and hatching of each kind of span, in the order in which they are stacked; none is the colour of a system."""


def span_style(kind: str) -> tuple[str, str]:
    """Colour and hatching of a kind of span, also of one that only somebody else's system has."""
    return SPANS.get(kind, (NEUTRAL, "+"))


def in_order(kinds: set[str]) -> list[str]:
    """Kinds of spans in the order in which they are stacked; unknown ones come last."""
    known = list(SPANS)
    return sorted(kinds, key=lambda kind: (known.index(kind) if kind in known else len(known), kind))


def plain(text: str) -> str:
    """Escapes a text so that plotly shows it unchanged: it would read `<b>` as bold, and `<a>` as a link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def row_height(names: Sequence[str], least: int) -> int:
    """Height of a row of a chart in pixels, so that the label with the most lines fits; at least `least`."""
    return max([least, *(14 * (1 + name.count("<br>")) + 10 for name in names if "<br>" in name)])


def label(text: str) -> str:
    """A name in a chart, escaped; if it is long, it is broken between settings, or anywhere if need be."""
    lines = [""]
    whole = re.split(r"(?<=[:,])|(?= \()", text)
    for part in (each[at : at + MOST_LETTERS] for each in whole for at in range(0, len(each), MOST_LETTERS)):
        if lines[-1] and len(lines[-1]) + len(part) > LINE_LETTERS:
            lines.append("")
        lines[-1] += part
    return "<br>".join(plain(line.strip()) for line in lines)
