"""What is printed and written of runs whose environments have several agents: two rates, each with its unit."""

from __future__ import annotations

import csv
import functools
import html
import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from rlbench.reports.exports import cells_csv, export, markdown
from rlbench.reports.page.html import render
from rlbench.reports.terminal import gated
from rlbench.reports.terminal.compared import print_compared
from rlbench.reports.terminal.history import print_history
from rlbench.reports.terminal.table import print_table
from rlbench.results.records.schema import Counters
from rlbench.results.records.store import StoredRun
from rlbench.results.summary.document import Summary
from rlbench.results.summary.summarise import summarise
from rlbench.results.verdicts.compare import Runs, compare
from rlbench.results.verdicts.gate import judge
from rlbench.results.verdicts.history import rows_of, series_of
from tests.reports.page.pages import Page
from tests.results.made_records import make_learned_from
from tests.results.summaries import make_run, stored

AGENTS = 3
ALONE = re.compile(r"(?<!agent )(?<!env )steps/s", re.IGNORECASE)
"""A rate that does not say whose steps it counts."""
COUNTERS = Counters(env_steps=1000, agent_steps=3000, frames=4000, learned=2900, discarded=60, in_flight=40)
GAINS = {"learner": 1.05, "simulator": 1.0}


def run_of(
    system: str, gpus: int, rate: float, *, seed: int = 0, agents: int = AGENTS, workload: str = "homogeneous"
) -> StoredRun:
    """A run of so many samples per second; `agents` of 1 is an environment like any other."""
    has_agents = agents > 1
    base, *settings = system.split(":")
    own = {name: value for name, _, value in (each.partition("=") for each in settings)}
    cell = {"scenario": "pettingzoo/game" if has_agents else "gym/Game-v0", "device": "cpu", "workload": workload}
    run = make_run(
        base,
        gpus,
        seed=seed,
        steps_per_s=rate,
        cell={**cell, "settings": own, "hash": f"{system}-{gpus}-{seed}-{agents}-{workload}"},
        id=f"{system}-{gpus}-{seed}-{agents}-{workload}",
        counters=COUNTERS if has_agents else Counters(env_steps=1000, frames=1000, learned=1000),
        learned_from=make_learned_from(),
        commit="abcdef0123",
    )
    more = {"env_steps_per_s": rate / agents if has_agents else None, "gains": GAINS, "emulated": False}
    return stored(
        run.model_copy(update={"figures": run.figures.model_copy(update=more)}), [0.98 * rate, rate, 1.02 * rate, rate]
    )


RUNS = [run_of(system, gpus, rate * gpus) for system, rate in (("ver", 900.0), ("ddppo", 300.0)) for gpus in (1, 2)]
VARIANTS = [*RUNS, run_of("ver", 1, 870.0, seed=1)]


@pytest.fixture(scope="module")
def summary() -> Summary:
    """The summary of two systems on two numbers of ranks."""
    return summarise(RUNS)


def shown(write: Any, *arguments: Any) -> str:
    """What a command prints."""
    file = io.StringIO()
    write(*arguments, Console(file=file, width=200, highlight=False))
    return file.getvalue()


def sides(*, faster: float = 1.1) -> Sequence[Runs]:
    """The runs before and after a change, three seeds of each."""
    rates = ((900, 905, 895), [faster * rate for rate in (900, 905, 895)])
    return [
        Runs(name=name, runs=[run_of("ver", 1, rate, seed=seed) for seed, rate in enumerate(each)])
        for name, each in zip(("before", "after"), rates, strict=True)
    ]


def test_the_table_has_both_rates(summary: Summary) -> None:
    """In columns side by side, and a line says what they are; intervals are of agent steps."""
    text = shown(functools.partial(print_table, explain=True), summary)
    assert not ALONE.search(text), text
    head, row, *_ = [line.split("|") for line in text.splitlines() if "|" in line]
    assert [column.strip() for column in head][2:4] == ["agent steps/s (95 %)", "env steps/s"]
    assert "agent steps/s: fresh agent steps learned per second, over all ranks; env steps/s: those of" in text
    assert [column.split()[0] for column in row][1:4] == ["ver", "900", "300"]


def test_a_table_of_both_kinds_of_work_calls_all_of_them_agent_steps() -> None:
    """Where an environment has one agent, its env steps are its agent steps: both columns have its rate."""
    text = shown(print_table, summarise([*RUNS, run_of("ver", 1, 700.0, agents=1)]))
    assert not ALONE.search(text), text
    row = next(line for line in text.splitlines() if "gym/Game-v0" in line)
    assert [column.split()[0] for column in row.split("|")][3:5] == ["700", "700"]


def test_a_table_without_agents_is_as_it_was() -> None:
    """It has neither the words nor the column."""
    text = shown(functools.partial(print_table, explain=True), summarise([run_of("ver", 1, 700.0, agents=1)]))
    assert "agent" not in text
    assert "env steps/s" not in text
    assert "steps/s: fresh env steps learned per second, over all ranks" in text


def test_the_answer_has_both_rates(summary: Summary) -> None:
    """So has the sentence of what bounds it, which is of agent steps."""
    (answer,) = summary.answers
    assert "`ver` makes 1,800 agent steps/s (600 env steps/s)" in answer
    assert "more agent steps/s" in answer
    assert not ALONE.search(answer)


def test_markdown_has_both_rates(summary: Summary) -> None:
    """As columns side by side."""
    text = markdown.to_markdown(summary)
    assert "| agent steps/s | env steps/s |" in text
    assert not ALONE.search(text), text


def test_exports_have_the_unit_and_both_rates(summary: Summary, tmp_path: Path) -> None:
    """JSON, CSV and Parquet have what records have; cells also say what their samples are."""
    (cell, *_) = json.loads(summary.to_json())["cells"]
    assert (cell["unit"], cell["steps_per_s"]["value"], cell["env_steps_per_s"]) == ("agent steps", 900, 300)
    (row, *_) = csv.DictReader(io.StringIO(cells_csv.to_csv(summary.cells)))
    assert (row["unit"], row["steps_per_s.value"], row["env_steps_per_s"]) == ("agent steps", "900.0", "300.0")
    names = {"counters.agent_steps": 3000, "counters.env_steps": 1000, "figures.env_steps_per_s": 300.0}
    (run, *_) = csv.DictReader(io.StringIO(export.to_csv(summary.runs)))
    assert {name: float(run[name]) for name in names} == names
    export.write_parquet(summary.runs, tmp_path / "runs.parquet")
    (typed, *_) = pq.read_table(tmp_path / "runs.parquet").to_pylist()
    assert {name: typed[name] for name in names} == names


def test_compared_sides_have_both_rates() -> None:
    """Of A and of B."""
    a, b = sides()
    alone = [run_of("ddppo", 1, 300.0)]
    text = shown(print_compared, compare(a, replace(b, runs=[*b.runs, *alone])))
    assert not ALONE.search(text), text
    for title in ("agent steps/s A", "agent steps/s B", "env steps/s A", "env steps/s B"):
        assert title in text
    assert "only in B: ddppo, pettingzoo/game, homogeneous, 1 CPU rank: 300 agent steps/s, 100 env steps/s" in text


@pytest.mark.parametrize("faster", [0.8, 1.0])
def test_a_gate_judges_both_rates(faster: float) -> None:
    """The one of agent steps decides; that of env steps is beside it."""
    judged = judge(*sides(faster=faster))
    assert judged.outcome == ("regression" if faster < 1 else "passed")
    assert [check.title for check in judged.checks[:2]] == ["agent steps/s", "env steps/s"]
    texts = [
        shown(gated.print_gate, judged),
        gated.to_markdown(judged),
        gated.to_junit(judged),
        *gated.workflow_commands(judged),
    ]
    for text in texts:
        assert not ALONE.search(text), text


def test_a_gate_of_other_work_is_as_it_was() -> None:
    """It judges no env steps/s beside steps/s."""
    runs = Runs(name="same", runs=[run_of("ver", 1, rate, seed=seed, agents=1) for seed, rate in enumerate((9, 9, 9))])
    titles = [check.title for check in judge(runs, runs).checks]
    assert titles[0] == "steps/s"
    assert "env steps/s" not in titles


def test_a_history_has_both_rates() -> None:
    """As columns side by side."""
    rows = rows_of(VARIANTS)
    assert {row.unit for row in rows} == {"agent steps"}
    text = shown(print_history, series_of(rows))
    assert not ALONE.search(text), text
    assert re.search(r"agent steps/s +\| +env steps/s", text)


def test_the_page_has_both_rates_everywhere() -> None:
    """Titles, axes, hover texts, tables and notes: no rate in it is of steps alone."""
    runs = [*RUNS, run_of("ver:preempt=never", 1, 800.0), run_of("ver", 1, 850.0, workload="heterogeneous")]
    summary = summarise(runs).model_copy(update={"history": series_of(rows_of(runs))})
    page = render(summary, {}, title="", command=[])
    figures = json.dumps(Page(page).data["figures-data"])
    body = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]+>", " ", body))
    for where in (text, figures):
        found = ALONE.search(where)
        assert found is None, where[max(0, found.start() - 200) : found.end() + 50]
    assert "Agent steps/s" in figures
    for title in ("Agent steps/s on 1 CPU rank", "What the mechanisms of ver give", "over revisions"):
        assert title in text
    assert "What became of agent steps, by scenario part" in text
    assert "Shares of agents in the samples that were learned" in text
