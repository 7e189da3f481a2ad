from __future__ import annotations

import json
import re

import pytest

from rlbench.reports.exports.markdown import code, escape, to_markdown
from rlbench.results.fairness.differences import Difference
from rlbench.results.summary.bottleneck import Bottleneck
from rlbench.results.summary.document import Fairness, Finding, Learning, Summary
from rlbench.results.summary.summarise import summarise
from tests.reports.summaries import between, make_summary, warning
from tests.reports.terminal.test_table import printed_summary, scaled, table_of
from tests.results.made_records import make_record
from tests.results.summaries import make_cell, stored

BOUND = Bottleneck(stage="inference", share=0.71, sentence="bound by inference")


def rows(text: str) -> list[list[str]]:
    """The cells of a document's table: the header, then a row each; pipes that are escaped part nothing."""
    table = [line for line in text.splitlines() if line.startswith("|")]
    parted = [[part.strip() for part in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table]
    return [parted[0], *parted[2:]]


def by_title(text: str) -> list[dict[str, str]]:
    """The rows by the titles of their columns."""
    header, *others = rows(text)
    return [dict(zip(header, row, strict=True)) for row in others]


def test_row_of_a_cell() -> None:
    """A row has the rate and the scaling with their intervals, efficiency, utilisation and what bounds the system."""
    (row,) = by_title(to_markdown(make_summary(scaled(bottleneck=BOUND))))
    assert row["system"] == "ddppo"
    assert row["GPUs"] == "8 (emulated)"
    assert row["steps/s"] == "1,024 (983 to 1,065)"
    assert row["scaling"] == "6.39 (6.07 to 6.71)"
    assert (row["efficiency"], row["utilisation"]) == ("80%", "42%")
    assert row["bound by"] == "inference 71%"
    assert row["where the time went"] == "simulate 50%, wait:straggler 20%, learn 13%, infer 10%"


def test_every_row_has_all_columns() -> None:
    """Cells that lack figures have as many columns as the others, and say n/a."""
    text = to_markdown(make_summary(scaled(bottleneck=BOUND), make_cell("sync", 8, None)))
    header, full, empty = rows(text)
    assert len(header) == len(full) == len(empty)
    assert empty[2:5] == ["failed", "n/a", "n/a"]
    separator = next(line for line in text.splitlines() if line.startswith("| ---"))
    assert separator.count("|") == len(header) + 1


def test_answers_come_first_and_findings_last() -> None:
    """The document says what it comes to, then the table, then what is not comparable, then what is wrong."""
    difference = Difference(aspect="epochs", values={"1": ["appo"], "2": ["ddppo"]})
    text = to_markdown(
        make_summary(
            scaled(),
            answers=["emulated/open-fridge, homogeneous: on 8 emulated GPUs `ddppo` makes 1,024 steps/s."],
            findings=[
                Finding(severity="failed", text="failed: sync: died", runs=["x"]),
                warning("load 3.1", "ddppo-8"),
            ],
            fairness=[Fairness(sweep="s", scenario="w", workload="h", gpus=8, differences=[difference])],
        )
    )
    parts = [
        "- emulated/open-fridge",
        "| system",
        "- 8 GPUs: not comparable",
        "- failed: sync: died",
        "- warning: load 3.1",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "`ddppo` makes" in text


@pytest.mark.parametrize(
    "name",
    ["a|b", "`a`", "<img src=x>", "[a](http://b)", "*a*", "_a_", "a\\", "a\nb", "~a~", "&lt;a", "@a", "#1", "$a$"],
)
def test_names_are_shown_as_they_are(name: str) -> None:
    """Whatever Markdown would take for its own in the name of a system is escaped, and the table stays whole."""
    text = to_markdown(make_summary(make_cell(name, 8), make_cell("sync", 8), findings=[warning(name, "sync-8")]))
    header, row, plain = rows(text)
    assert len(header) == len(row) == len(plain)
    assert unescaped(row[0]) == " ".join(name.split())
    assert row[0] != name
    line = next(line for line in text.splitlines() if line.startswith("- warning: "))
    assert " ".join(name.split()) in unescaped(line)


def unescaped(text: str) -> str:
    """What a reader sees of text that holds no markup."""
    text = re.sub(r"\\([^a-z0-9\s])", r"\1", text)
    for shown, written in (
        ("<", "&lt;"),
        (">", "&gt;"),
        ("@", "&#64;"),
        ("#", "&#35;"),
        ("$", "&#36;"),
        ("&", "&amp;"),
    ):
        text = text.replace(written, shown)
    return text


def test_names_that_need_no_escape_stay_readable() -> None:
    """Settings, with their underscores inside words, are written as they are."""
    name = "gossip:learn.max_grad_norm=0.5:average.beta=0.1"
    assert escape(name) == name


def test_systems_in_answers_are_code() -> None:
    """A system stands as code in an answer whatever it holds; what is around it is escaped."""
    answer = "<b>: on 8 GPUs `a|b` makes 5 steps/s, 2.00x as many as `x`y`."
    cells = [make_cell("a|b", 8), make_cell("x`y", 8)]
    first = to_markdown(make_summary(*cells, answers=[answer])).splitlines()[0]
    assert first == "- &lt;b&gt;: on 8 GPUs `a|b` makes 5 steps/s, 2.00x as many as `` x`y ``."
    assert code("a``b") == "``` a``b ```"


def test_learning_is_a_column_where_runs_learned() -> None:
    """The final success stands in the table with its interval, and n/a for those without a curve."""
    learned = Learning(
        metric="success",
        final=between(0.91, 0.9, 0.93, "seeds"),
        finals=[0.9, 0.91, 0.93],
        area=None,
        area_env_steps=None,
        threshold=None,
        to_threshold=[],
        curve=[],
        against_reference=None,
    )
    titled = by_title(to_markdown(make_summary(make_cell("sync", 8, learning=learned), make_cell("ver", 8))))
    assert [row["final success"] for row in titled] == ["0.91 (0.90 to 0.93)", "n/a"]


def test_no_runs() -> None:
    """An empty summary is a document too, with what could not be read."""
    gone = Finding(severity="unreadable", text="/x: is damaged", runs=["/x"])
    assert to_markdown(make_summary(findings=[gone])) == "No runs.\n- unreadable: /x: is damaged\n"


def two_systems() -> Summary:
    """The summary of real parts."""
    rates = [95.0, 100.0, 105.0, 99.0, 101.0]
    return summarise(
        [
            stored(make_record(system, gpus, steps_per_s=factor * 100), [factor * rate for rate in rates])
            for system, gpus, factor in (("sync", 1, 1.0), ("sync", 8, 5.0), ("ver", 1, 2.0), ("ver", 8, 13.37))
        ]
    )


def test_the_same_numbers_as_in_the_terminal_and_the_json() -> None:
    """Rates, intervals, scaling and efficiency are those of the terminal's table, and round those of the JSON."""
    summary = two_systems()
    printed = {(row["system"], row["GPUs"]): row for row in table_of(printed_summary(summary))}
    cells = json.loads(summary.to_json())["cells"]
    titled = by_title(to_markdown(summary))
    assert len(printed) == len(cells) == len(titled) == 4
    for row, cell in zip(titled, cells, strict=True):
        line = printed[row["system"], row["GPUs"].removesuffix(" (emulated)")]
        assert row["efficiency"] == line["efficiency"]
        assert row["steps/s"] == line["steps/s (95 %)"].rstrip(" *~!")
        assert row["scaling"] == line["scaling (95 %)"]
        rate, _, rate_ends = row["steps/s"].rstrip(")").partition(" (")
        assert rate == f"{cell['steps_per_s']['value']:,.0f}"
        assert rate_ends.split(" to ") == [
            f"{cell['steps_per_s'][end]:#,.3g}".rstrip(".")
            if cell["steps_per_s"][end] < 99.95
            else f"{cell['steps_per_s'][end]:,.0f}"
            for end in ("low", "high")
        ]
        assert row["scaling"].startswith(f"{cell['scaling']['value']:.2f}")
