"""The values that options may have, for completion in a shell: names, and settings after a colon.

Each is found when it is asked for, without torch: whoever presses a key waits for it. Nothing here runs code of the
user's: a scenario that names code has no settings here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, get_args

from rlbench.harness.commands import FORMATS, REPORT_FORMATS
from rlbench.harness.contract.budget import METRICS
from rlbench.harness.contract.scenario import WORKLOADS
from rlbench.harness.launch.options import LAUNCHERS
from rlbench.harness.plan import registry
from rlbench.harness.plan.overrides import settable

SHELLS = ("bash", "zsh", "fish")


def values(option: str, text: str) -> list[str]:
    """What an option may be that begins with a text: whole words, which go on where they end in `:`, `=` or `/`.

    Args:
        option: its name without dashes, `systems`.
        text: what was typed of the value so far.
    """
    return [value for value in VALUES[option](text) if value.startswith(text)] if option in VALUES else []


def _systems(text: str) -> Iterator[str]:
    name, colon, _ = text.partition(":")
    if not colon:
        yield from registry.names(registry.SYSTEMS)
        yield from registry.names(registry.EXTERNAL)
    elif name in registry.names(registry.SYSTEMS):  # a library's own module may be slow to import
        yield from _with_settings(text, registry.load_system(name, {}))


def _scenarios(text: str) -> Iterator[str]:
    name, colon, _ = text.partition(":")
    family, slash, variant = name.partition("/")
    if colon:
        if not registry.names_code(name, {}):
            yield from _with_settings(text, registry.load_family(family).make(variant, "homogeneous"))
    elif slash:
        yield from (f"{family}/{each}" for each in registry.load_family(family).variants)
    else:
        names = registry.names(registry.SCENARIOS)
        yield from names
        begun = [each for each in names if each.startswith(text)]
        if text in names or len(begun) == 1:  # a shell would take the name for all there is
            yield f"{text if text in names else begun[0]}/"


def _with_settings(text: str, target: Any) -> Iterator[str]:
    """The text with each field that its last setting may have, or each value of that field."""
    before, _, typed = text.rpartition(":")
    field, equals, _ = typed.partition("=")
    if equals:
        yield from (f"{before}:{field}={value}" for value in getattr(target, "VARIANTS", {}).get(field, ()))
        return
    there = {each.partition("=")[0] for each in before.split(":")[1:]}
    for each in settable(target):
        if each not in there:
            yield f"{before}:{each.removesuffix('NAME')}" if each.endswith(".NAME") else f"{before}:{each}="


def _conditions(text: str) -> Iterator[str]:
    """`--where`: a field, or a field with its value."""
    field, equals, value = text.partition("=")
    if not equals:
        from rlbench.results.records.index import FIELDS

        yield from (f"{each}=" for each in FIELDS)
        return
    from rlbench.results.records.schema import Status

    own: dict[str, Callable[[str], Iterable[str]]] = {
        "system": _systems,
        "scenario": _scenarios,
        "status": lambda _: get_args(Status),
        "workload": VALUES["workload"],
        "device": lambda _: (*_devices(""), "predicted"),
        "protocol": _protocols,
    }
    if field in own:
        yield from (f"{field}={each}" for each in own[field](value))


def _devices(_: str) -> Iterable[str]:
    from rlbench.harness.devices.kinds import DEVICE_KINDS

    return DEVICE_KINDS


def _protocols(_: str) -> Iterable[str]:
    from rlbench.harness.metering.window import PROTOCOLS

    return PROTOCOLS


def _libraries(_: str) -> Iterable[str]:
    return (*registry.names(registry.EXTERNAL), "all")


def _listed(one: Callable[[str], Iterable[str]]) -> Callable[[str], Iterable[str]]:
    """Values with commas between them: the last is completed, one that is there already is not offered again."""

    def several(text: str) -> Iterator[str]:
        before, comma, last = text.rpartition(",")
        there = before.split(",") if comma else []
        yield from (f"{before}{comma}{value}" for value in one(last) if value.startswith(last) and value not in there)

    return several


VALUES: dict[str, Callable[[str], Iterable[str]]] = {
    "systems": _listed(lambda text: (*_systems(text), *(() if ":" in text else ("all",)))),
    "system": _systems,
    "reference": _systems,
    "scenario": _listed(_scenarios),
    "workload": _listed(lambda _: WORKLOADS),
    "device": _devices,
    "protocol": _protocols,
    "scaling": lambda _: ("weak", "strong"),
    "launcher": lambda _: LAUNCHERS,
    "until": lambda _: (f"{metric}>=" for metric in METRICS),
    "where": _conditions,
    "export format": lambda _: FORMATS,
    "report format": lambda _: REPORT_FORMATS,
    "list what": lambda _: ("systems", "scenarios"),
    "install names": _libraries,
    "remove names": _libraries,
    "install-completion": lambda _: SHELLS,
    "show-completion": lambda _: SHELLS,
}
"""By the option, or by a command and its argument."""
