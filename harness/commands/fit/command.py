"""What `rlbench fit` does: reads a profile and figures, fits, writes the fitted profile, and prints all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rich.text import Text

from rlbench.harness.commands.fit.figures import read_figures
from rlbench.harness.commands.fit.fitting import fit
from rlbench.harness.commands.fit.keys import keys_to_fit
from rlbench.harness.commands.profile import ASSUMED
from rlbench.harness.commands.profile.command import check_out
from rlbench.harness.commands.profile.making import write_profile
from rlbench.harness.contract.prediction import Profiled
from rlbench.harness.contract.scenario import WORKLOADS
from rlbench.harness.live.counted import Counted
from rlbench.harness.live.footer import progress_console
from rlbench.harness.plan import registry
from rlbench.harness.predicting.points import Length, Planned
from rlbench.reports.figures import format as fmt
from rlbench.reports.terminal.table import make_console, make_table

if TYPE_CHECKING:
    from rich.table import Table

    from rlbench.harness.commands.fit.figures import Figure
    from rlbench.harness.commands.fit.fitting import Fitted, FittedKey
    from rlbench.harness.commands.fit.keys import Key

LENGTH = Length(seconds=100.0, num_seeds=lambda gpus: max(1, 4 // gpus))
"""Of each prediction: about as many draws for each number of GPUs."""
LEAST_RATE = 1e-3
"""Env steps/s of a run in which nothing is learned: its numbers are not tried again."""


def fit_profile(profile: str, to: Path, keys: str | None, seconds: float, out: Path) -> int:
    """Fits a profile to the figures in a file, writes and prints it; returns the exit code. Raises ValueError."""
    document = profile_document(f"emulated/{profile}")
    figures = read_figures(to, profile)
    chosen = keys_to_fit(numbers_of(document), [] if keys is None else [name.strip() for name in keys.split(",")])
    check_out(out)
    planned = Planned(list(dict.fromkeys(figure.point for figure in figures)), replace(LENGTH, seconds=seconds))
    console = make_console()
    fitted = fit_with_progress(
        chosen,
        [figure.fitted_to for figure in figures],
        lambda numbers: rates_of(planned, figures, numbers),
    )
    tables, comments = _fitted_document(document, fitted, profile, to)
    write_profile(tables, out, comments)
    for table in (_keys(fitted, chosen), _figures(figures, fitted)):
        console.print()
        console.print(table)
    console.print()
    if not fitted.has_converged:
        console.print(Text("warning: the fit has not settled; fit again from the profile that was written"))
    for line in (*_errors(figures, fitted), f"profile: {out}", f"next: rlbench predict --scenario emulated/{out} …"):
        console.print(Text(line), soft_wrap=True)
    return 0


def profile_document(scenario: str) -> Mapping[str, Any]:
    """The profile of `emulated/…`, as TOML has it. Raises ValueError for one that cannot be read."""
    loaded = registry.load_scenario(scenario, WORKLOADS[0], {})
    assert isinstance(loaded, Profiled), scenario
    return loaded.profile_document


def numbers_of(document: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a profile, by dotted key."""
    tables = {name: table for name, table in document.items() if isinstance(table, dict)}
    return {
        f"{name}.{key}": value
        for name, table in tables.items()
        for key, value in table.items()
        if not isinstance(value, list)
    }


def rates_of(planned: Planned, figures: Sequence[Figure], numbers: Mapping[str, float]) -> list[float]:
    """The predictions for all figures, env steps/s."""
    rates = planned.rates(numbers, least=LEAST_RATE)
    return [rates[figure.point] for figure in figures]


def fit_with_progress(
    keys: Sequence[Key],
    figures: Sequence[float | None],
    predict: Callable[[Mapping[str, float]], Sequence[float]],
    about: str = "",
) -> Fitted:
    """Fits, and shows on stderr how often the model was asked and how far off it is."""
    given = [number for number, figure in enumerate(figures) if figure is not None]
    least, asked = float("inf"), 0
    with Counted(progress_console()) as progress:
        what = f"{about}fitting {len(keys)} keys to {len(given)} figures"
        progress.say(what)

        def counted(numbers: Mapping[str, float]) -> Sequence[float]:
            nonlocal least, asked
            predicted = predict(numbers)
            asked += 1
            least = min(least, _mean_error([(predicted[number], figures[number]) for number in given]))
            progress.say(f"{what}: {asked} predictions of all, {least:.1%} off on average")
            return predicted

        return fit(keys, figures, counted)


def _mean_error(pairs: Sequence[tuple[float, float | None]]) -> float:
    return fmean(abs(predicted / figure - 1) for predicted, figure in pairs if figure is not None)


def _fitted_document(
    document: Mapping[str, Any], fitted: Fitted, profile: str, to: Path
) -> tuple[dict[str, Any], dict[str, str]]:
    """The fitted profile as TOML has it, and where its numbers are from."""
    of_key = {key.name: key for key in fitted.keys}
    assumed = [name for name in document["assumed"] if name not in of_key or not of_key[name].is_determined]
    comments = {}
    for name in numbers_of(document):
        how = f"as in {profile}" + (f": {ASSUMED}" if name in assumed else "")
        comments[name] = how if name not in of_key else _said(of_key[name])
    tables = {name: dict(table) if isinstance(table, dict) else table for name, table in document.items()}
    for name, number in fitted.numbers.items():
        table, _, key = name.partition(".")
        tables[table][key] = number
    about = f"{document['about']}; {len(fitted.keys)} keys fitted to {fitted.num_figures} figures of {to.name}"
    return {**tables, "about": about, "assumed": assumed}, comments


def _said(key: FittedKey) -> str:
    ends = f"95% interval {fmt.number(key.low)} to {fmt.number(key.high)}"
    return f"fitted: {ends}" if key.is_determined else f"the figures say little of it: {ends}"


def _keys(fitted: Fitted, keys: Sequence[Key]) -> Table:
    table = make_table()
    table.add_column("key", overflow="fold")
    for title in ("before", "fitted", "95% interval"):
        table.add_column(title, justify="right")
    table.add_column("the figures")
    for before, key in zip(keys, fitted.keys, strict=True):
        ends = f"{fmt.number(key.low)} to {fmt.number(key.high)}"
        told = "determine it" if key.is_determined else "say little of it"
        table.add_row(key.name, fmt.number(before.start), fmt.number(key.number), ends, told)
    return table


def _figures(figures: Sequence[Figure], fitted: Fitted) -> Table:
    table = make_table()
    table.add_column("of", overflow="fold")
    for title in ("given", "predicted", "95% interval", "error"):
        table.add_column(title, justify="right")
    table.add_column("figure")
    for figure, predicted, low, high in zip(
        figures, fitted.predicted.tolist(), fitted.low.tolist(), fitted.high.tolist(), strict=True
    ):
        given = figure.steps_per_s
        is_wanted = "wanted" if given is None else "held out" if figure.is_held_out else "fitted"
        table.add_row(
            Text(figure.name),
            "-" if given is None else fmt.number(given),
            fmt.number(predicted),
            f"{fmt.number(low)} to {fmt.number(high)}",
            "-" if given is None else f"{predicted / given - 1:+.1%}",
            is_wanted,
        )
    return table


def _errors(figures: Sequence[Figure], fitted: Fitted) -> list[str]:
    """The mean error of what was fitted and of what was held out, apart."""
    lines = []
    for name, is_held_out in (("fitted", False), ("held out", True)):
        pairs = [
            (predicted, figure.steps_per_s)
            for figure, predicted in zip(figures, fitted.predicted.tolist(), strict=True)
            if figure.steps_per_s is not None and figure.is_held_out == is_held_out
        ]
        if pairs:
            lines.append(f"{name}: mean absolute error of {len(pairs)} figures {_mean_error(pairs):.1%}")
    return lines
