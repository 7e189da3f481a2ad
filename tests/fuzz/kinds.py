"""The kinds of files that are spoilt: a good one of each, and how it is spoilt."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.fuzz import samples
from tests.fuzz.mutations import bytes_of, json_of, table_of, toml_of
from tests.systems.actions import choices


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """Of files."""

    good: Callable[[], bytes]
    number: int
    """How many spoilt ones `nox -s deep` reads; `nox -s tests` reads one of 20."""
    also: Callable[[bytes], st.SearchStrategy[bytes]] | None = None
    """Spoils what is in the file, and leaves a file of its format."""

    def spoilt(self) -> st.SearchStrategy[bytes]:
        """Files of this kind, none as it should be."""
        good = self.good()
        return bytes_of(good) if self.also is None else st.one_of(bytes_of(good), self.also(good))


def weights() -> bytes:
    """A policy as a run leaves it."""
    import torch

    from rlbench.systems.policies.policy import build_policy
    from tests.systems.engine.counting import SPACE

    made = io.BytesIO()
    torch.save(build_policy("small", SPACE, choices(4), seed=3).state_dict(), made)
    return made.getvalue()


def _json(good: bytes) -> st.SearchStrategy[bytes]:
    return json_of(json.loads(good))


def _row(good: bytes) -> st.SearchStrategy[bytes]:
    """One row of a history is another document."""
    first, rest = good.split(b"\n", 1)
    return json_of(json.loads(first)).map(lambda row: row + b"\n" + rest)


KINDS = {
    "record": Kind(good=lambda: samples.record().model_dump_json(indent=1).encode(), number=2200, also=_json),
    "series": Kind(
        good=lambda: samples.packed(samples.series()), number=1400, also=lambda _: table_of(samples.series())
    ),
    "spans": Kind(good=lambda: samples.packed(samples.spans()), number=500, also=lambda _: table_of(samples.spans())),
    "plan": Kind(good=samples.plan, number=1400, also=_json),
    "profile": Kind(
        good=lambda: samples.profile().encode(), number=2700, also=lambda good: toml_of(good.decode("utf-8"))
    ),
    "history": Kind(good=samples.history, number=1200, also=_row),
    "index": Kind(good=samples.index, number=300),
    "weights": Kind(good=weights, number=300),
}
