"""Names that trackers and file systems take, made from texts that may be anybody's."""

from __future__ import annotations

import re

MOST_LETTERS = 200
"""Longest name."""


def name_of(text: str) -> str:
    """The name of a value: parts of letters, digits, `_`, `.` and `-`, joined by `/`; none is empty, `.` or `..`."""
    parts = (re.sub(r"[^\w.-]", "_", part, flags=re.ASCII).strip(".") for part in text.split("/"))
    return "/".join(filter(None, parts))[:MOST_LETTERS].rstrip("/.") or "_"


def file_name_of(text: str) -> str:
    """A name that is one part of a path, and means nothing to a file system, a shell or a tracker."""
    return re.sub(r"[^\w.=+-]", "_", text, flags=re.ASCII).lstrip(".-")[:MOST_LETTERS] or "_"
