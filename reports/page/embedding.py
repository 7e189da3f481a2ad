"""What a page carries within itself: its scripts, and data for them, compressed.

Data stand in `script` elements that no browser runs, as zlib streams in base64 that the page's script unpacks; so does
plotly.js. The content security policy of a page names the hashes of its scripts, and lets nothing be loaded.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup
from pydantic_core import to_json

TEMPLATES = Path(__file__).parent / "templates"
PLOTLY = Path(__file__).parent / "plotly" / "plotly-basic.min.js"
"""The smallest bundle of plotly.js, with lines, markers and bars: npm's `plotly.js-basic-dist-min`, 4.1.1, MIT."""
SCRIPTS = (
    *("start.js", "charts.js", "filters.js", "tables.js", "timeline_run.js", "timeline_paint.js", "timeline.js"),
    *("live.js", "last.js"),
)
"""Parts of the page's own script, in their order; they share one scope."""


def packed(text: str) -> Markup:
    """A text for an inert element: a zlib stream in base64, which has no letter that HTML reads otherwise."""
    return Markup(base64.b64encode(zlib.compress(text.encode(), 9)).decode())  # noqa: S704  letters and digits


def packed_json(value: object) -> Markup:
    """A value as JSON, packed; NaN and infinities become null."""
    return packed(to_json(value, inf_nan_mode="null").decode())


def plotly() -> str:
    """plotly.js, which the page runs when it has unpacked it."""
    return PLOTLY.read_text(encoding="utf-8")


def script() -> str:
    """The page's own script."""
    parts = [(TEMPLATES / name).read_text(encoding="utf-8") for name in SCRIPTS]
    text = '(() => {\n"use strict";\n' + "\n".join(parts) + "})();\n"
    assert "</script" not in text.lower()
    return text


def styles() -> str:
    """The page's style sheet."""
    return "".join((TEMPLATES / name).read_text(encoding="utf-8") for name in ("report.css", "timeline.css"))


def policy(scripts: Sequence[str], *, asks: bool = False) -> str:
    """A content security policy: only these scripts run, by their hashes, and nothing is loaded from anywhere.

    `asks`: the page may ask where it comes from.
    """
    hashes = (base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in scripts)
    allowed = " ".join(f"'sha256-{each}'" for each in hashes)
    asked = "'self'" if asks else "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        f"base-uri 'none'; form-action 'none'; connect-src {asked}"
    )
