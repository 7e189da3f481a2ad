"""Output of a gate: in a terminal, as Markdown for a pull request, as JUnit XML, and for GitHub Actions."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree as ET

from rich.console import Console

from rlbench.reports.exports.markdown import escape, table_lines
from rlbench.reports.figures import columns as col
from rlbench.reports.figures import format as fmt
from rlbench.reports.figures.columns import TableColumn
from rlbench.reports.terminal.layout import aligned
from rlbench.reports.terminal.notes import packed
from rlbench.reports.terminal.table import make_console, print_blocks, print_caveats, print_lines
from rlbench.results.verdicts.gate import RANKED, Check, Gate
from rlbench.results.verdicts.metrics import MAIN, METRICS, level_beside

NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold."""
MEMORY, MB = "memory_bytes", 1e6
RATE = METRICS[0].name
LEVELS = {"regression": "error", "not comparable": "error", "inconclusive": "warning"}
"""Severities with which GitHub shows checks that did not pass."""


def print_gate(gate: Gate, console: Console | None = None) -> None:
    """Prints the outcome, a row for each check, why checks that count did not pass, and what spoils the figures."""
    console = console or make_console()
    print_lines(console, [gate.sentence, _sides(gate)])
    if gate.checks:
        shared, names = _apart(gate.checks)
        print_lines(console, [*packed(shared, console.width), ""])
        print_blocks(console, names, [_compact(gate)], gate.checks)
    counting = [check for check in gate.checks if check.outcome in LEVELS]
    print_lines(console, [f"{check.outcome}: {check.where}: {check.title}: {check.reason}" for check in counting])
    print_lines(console, _notes(gate))
    print_caveats(console, _findings(gate))


def to_markdown(gate: Gate) -> str:
    """The outcome and all checks as Markdown for a pull request; the worst checks come first."""
    lines = [f"**{escape(gate.sentence)}**", "", escape(_sides(gate)), ""]
    if gate.checks:
        ranked = sorted(gate.checks, key=lambda check: (*RANKED, "not judged").index(check.outcome))
        lines += [*table_lines([*_NAMES, *_FIGURES, _WHY], ranked), ""]
    lines += [f"{escape(line)}  " for line in [*_notes(gate), *_findings(gate)]]
    return "\n".join(lines) + "\n"


def to_junit(gate: Gate) -> str:
    """JUnit XML with a test case for each check; one case with an error if there is no check."""
    suite = ET.Element("testsuite", name=_xml(f"rlbench gate {gate.baseline} {gate.candidate}"))
    counts: dict[str, int] = defaultdict(int)
    for check in gate.checks:
        case = ET.SubElement(suite, "testcase", classname=_xml(check.where), name=_xml(check.title))
        kind = {"regression": "failure", "passed": "", "not judged": "skipped"}.get(check.outcome, "error")
        if kind:
            counts[kind] += 1
            ET.SubElement(case, kind, message=_xml(f"{check.outcome}: {_told(check)}"))
    if not gate.checks:
        counts["error"] += 1
        case = ET.SubElement(suite, "testcase", classname="rlbench gate", name="cells")
        ET.SubElement(case, "error", message=_xml(gate.sentence))
    suite.set("tests", str(max(1, len(gate.checks))))
    for kind, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(name, str(counts[kind]))
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def workflow_commands(gate: Gate) -> Iterator[str]:
    """Workflow commands for GitHub Actions, which reads them from a step's output: one per check that did not pass."""
    for check in gate.checks:
        if level := LEVELS.get(check.outcome):
            yield f"::{level} title={_property(f'{check.outcome}: {check.where}')}::{_data(_told(check))}"
    if not gate.checks:
        yield f"::error title=rlbench gate::{_data(gate.sentence)}"


_SYSTEM: TableColumn[Check] = TableColumn(title="system", value=lambda check: check.system, is_number=False)
_GPUS: TableColumn[Check] = TableColumn(
    title="GPUs", value=lambda check: fmt.ranks(check.gpus, check.kind, check.device)
)
_METRIC: TableColumn[Check] = TableColumn(title="metric", value=lambda check: check.title, is_number=False)
_NAMES: tuple[TableColumn[Check], ...] = (
    _SYSTEM,
    TableColumn(title="scenario", value=lambda check: f"{check.scenario}, {check.workload}", is_number=False),
    _GPUS,
    _METRIC,
)
_FIGURES: tuple[TableColumn[Check], ...] = (
    TableColumn(title="baseline", value=lambda check: _amount(check, check.baseline)),
    TableColumn(title="candidate", value=lambda check: _amount(check, check.candidate)),
    TableColumn(title="runs", value=lambda check: f"{check.num_runs[0]}, {check.num_runs[1]}"),
    TableColumn(title="ratio", value=lambda check: _factor(fmt.value(check.ratio))),
    TableColumn(title="interval", value=lambda check: fmt.interval(fmt.ends(check.ratio), _factor)),
    TableColumn(
        title="limit", value=lambda check: f"{'>=' if check.higher_is_better else '<='} {_factor(check.limit)}"
    ),
)
_WHY: TableColumn[Check] = TableColumn(
    title="outcome",
    value=lambda check: check.outcome if check.outcome == "passed" else f"{check.outcome}: {check.reason}",
    is_number=False,
)


def _apart(checks: Sequence[Check]) -> tuple[list[str], list[TableColumn[Check]]]:
    """What all checks share, and the columns that tell them apart."""
    shareable: tuple[TableColumn[Check], ...] = (
        TableColumn(title="scenario", value=lambda check: check.scenario, is_number=False),
        TableColumn(title="workload", value=lambda check: check.workload, is_number=False),
        TableColumn(title="runs of each side", value=lambda check: f"{check.num_runs[0]}, {check.num_runs[1]}"),
    )
    shared = [column for column in shareable if len({column.value(check) for check in checks}) == 1]
    kinds = {(check.kind, check.device) for check in checks}
    said = [f"{column.title} {column.value(checks[0])}" for column in shared]
    if len(kinds) == 1:
        said.insert(-1, f"device {checks[0].device}")
    gpus: TableColumn[Check] = (
        TableColumn(title="GPUs", value=lambda check: str(check.gpus)) if len(kinds) == 1 else _GPUS
    )
    return said, [_SYSTEM, *(column for column in shareable if column not in shared), gpus, _METRIC]


def _compact(gate: Gate) -> list[TableColumn[Check]]:
    """The figures of a check, in few columns: the tolerance, and so every limit, is said above the table."""
    ratio = aligned([check.ratio for check in gate.checks], _factor)
    return [
        *_FIGURES[:2],
        TableColumn(title=f"ratio ({100 * gate.level:g} %)", value=lambda check: ratio(check.ratio), is_number=False),
        TableColumn(title="outcome", value=lambda check: check.outcome, is_number=False),
    ]


def _factor(value: float | None) -> str:
    """A ratio with three decimals, since it is compared with a tolerance of a few percent."""
    return fmt.NONE if value is None else f"{value:.3f}"


def _amount(check: Check, value: float | None) -> str:
    """The mean of a metric on one side."""
    if value is not None and check.metric == MEMORY:
        return f"{value / MB:,.0f} MB"
    return fmt.number(value)


def _sides(gate: Gate) -> str:
    return f"baseline {gate.baseline}, candidate {gate.candidate}, tolerance {100 * gate.tolerance:g} %"


def _told(check: Check) -> str:
    """A check in one line."""
    said = [f"{check.title}: {check.reason}"]
    if check.ratio is not None:
        ends = fmt.ends(check.ratio)
        said.append(
            f"{_amount(check, check.baseline)} -> {_amount(check, check.candidate)}, ratio {_factor(check.ratio.value)}"
            + (f" ({fmt.interval(ends, _factor)})" if ends else "")
        )
    return "; ".join(said)


def _findings(gate: Gate) -> list[str]:
    return [said for _, said in col.findings(gate.findings, 0)]


def _notes(gate: Gate) -> list[str]:
    """Lines that explain the columns."""
    lines = []
    rate = " and ".join(dict.fromkeys(check.title for check in gate.checks if check.metric == RATE))
    repeated = [check for check in gate.checks if check.ratio is not None and fmt.ends(check.ratio)]
    units = set(map(_repeated, repeated))
    if units:
        said = " or ".join(sorted(units))
        beside = {check.metric for check in repeated} - MAIN
        others = f" ({100 * level_beside(gate.level):g} % beside {rate})" if beside else ""
        lines.append(f"ratio: candidate / baseline; {100 * gate.level:g} % interval{others} from the spread of {said}")
    if any(check.outcome == "not judged" for check in gate.checks):
        lines.append(f"not judged: whether it is worse was not shown; beside {rate} only what was shown counts")
    if kinds := {check.kind for check in gate.checks} - {"measured"}:
        lines.append(f"{' and '.join(sorted(kinds))}: the figures speak of a profile, not of hardware")
    return lines


def _repeated(check: Check) -> str:
    """Of what the interval of a check is."""
    if check.at_once:
        return "pairs of runs at once"
    return "pairs of runs with the same seed" if check.paired else "the runs of each side"


def _xml(text: str) -> str:
    return NOT_XML.sub("?", text)


def _data(text: str) -> str:
    """Escapes the message of a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escapes a property of a workflow command."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
