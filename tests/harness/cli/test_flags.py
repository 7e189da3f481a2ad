from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from rlbench.harness.cli.flags import flags, whole


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Options of a toy."""

    most_cells: Annotated[int, "So many at most."] = 3
    dry: Annotated[bool, "Nothing happens."] = False


def test_fields_are_options() -> None:
    """A field is an option with its default and its help; the command gets the dataclass, and its other options."""
    got: list[object] = []

    @flags
    def toy(sizes: Sizes, out: Annotated[str, typer.Option(help="Where.")] = "here") -> None:
        got.append((sizes, out))

    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(toy)
    for words in ([], ["--most-cells", "5", "--dry", "--out", "there"]):
        assert CliRunner().invoke(app, words).exit_code == 0
    assert got == [(Sizes(), "here"), (Sizes(most_cells=5, dry=True), "there")]
    text = " ".join(CliRunner().invoke(app, ["--help"]).output.split())
    assert text.index("--most-cells <int> So many at most. [default: 3]") < text.index("--out")
    assert "--no-dry" not in text


@pytest.mark.parametrize(
    ("text", "read"), [("5", 5), ("1e6", 1_000_000), ("2.0", 2), ("-3", -3), (str(10**30), 10**30)]
)
def test_whole_numbers_may_have_an_exponent(text: str, read: int) -> None:
    """`--env-steps 1e6` is what people type; nothing is rounded."""
    assert whole(text) == read


@pytest.mark.parametrize("text", ["1.5", "1e-3", "inf", "nan", "many", ""])
def test_what_is_no_whole_number_is_said(text: str) -> None:
    """In the words of the rule, not of Python."""
    with pytest.raises(ValueError, match=f"^must be a whole number, is {text}$"):
        whole(text)
