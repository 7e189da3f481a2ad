from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from rlbench.harness.commands import listing
from rlbench.harness.plan import registry
from tests.harness.command import call


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    p: float = 0.6
    least: float = 0.25


@dataclass(frozen=True, kw_only=True, slots=True)
class Best:
    stale: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairs:
    mode: str = "pull"
    interval: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    num_steps: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Composed:
    VARIANTS: ClassVar[Mapping[str, Mapping[str, type]]] = {
        "rollout": {"steps": Steps},
        "preempt": {"cut": Cut, "best": Best},
        "average": {"pairs": Pairs},
    }

    about: str = "composed of choices"
    rollout: Steps = field(default_factory=Steps)
    preempt: Cut | Best = field(default_factory=Cut)
    average: Pairs = field(default_factory=Pairs)
    learn: Mapping[str, Any] = field(default_factory=dict)


class Theirs:
    about = "somebody else's"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Systems that stand in for the installed ones."""
    systems: dict[str, Any] = {"composed": Composed(), "theirs": Theirs()}

    def load(name: str, settings: Mapping[str, str]) -> Any:
        assert not settings
        if isinstance(systems[name], Exception):
            raise systems[name]
        return systems[name]

    monkeypatch.setattr(registry, "names", lambda group: sorted(systems) if group == registry.SYSTEMS else [])
    monkeypatch.setattr(registry, "load_system", load)
    return systems


@pytest.mark.parametrize(
    ("changes", "column", "shown"),
    [
        ({}, "rollout", "steps"),
        ({"rollout": Steps(num_steps=32)}, "rollout", "steps num_steps=32"),
        ({}, "preempt", "cut p=0.6"),
        ({"preempt": Cut(p=0.8, least=0.5)}, "preempt", "cut p=0.8 least=0.5"),
        ({"preempt": Best()}, "preempt", "best stale"),
        ({"preempt": Best(stale=False)}, "preempt", "best no stale"),
        ({"average": Pairs(mode="push", interval=10)}, "average", "pairs push interval=10"),
        ({}, "collect", "-"),
        ({}, "correct", "none"),
        ({"learn": {"correct": "vtrace", "epochs": 1}}, "correct", "vtrace"),
    ],
)
def test_a_choice_is_shown_by_its_variant_and_what_is_special(
    installed: dict[str, Any], changes: dict[str, Any], column: str, shown: str
) -> None:
    """A variant has its name from the command line; its first field and those not at their defaults follow."""
    installed["composed"] = Composed(**changes)
    assert listing.list_systems()[0].choices[column] == shown


def test_a_system_without_choices_is_listed_all_the_same(installed: dict[str, Any]) -> None:
    """Somebody else's system has no such fields; one that cannot be loaded is listed with the reason."""
    installed["torn"] = ValueError("system torn: cannot be imported: no module")
    _, theirs, torn = listing.list_systems()
    assert set(theirs.choices.values()) == {"-"}
    assert (theirs.about, torn.about) == ("somebody else's", "system torn: cannot be imported: no module")


@pytest.mark.parametrize("width", [80, 160])
def test_tables_fit_their_width(installed: dict[str, Any], monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """No line is longer than the terminal, and no word of a choice is broken."""
    installed["composed"] = Composed(about="a system whose description needs more than one line " * 3)
    monkeypatch.setenv("COLUMNS", str(width))
    out = call("list", "systems").out
    assert max(len(line.rstrip()) for line in out.splitlines()) <= width
    assert "cut p=0.6" in out
    assert all(name in out.splitlines()[0] for name in ("system", *listing.CHOICES, "what it is"))


@pytest.mark.usefixtures("installed")
def test_json_holds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts get what the table says, as JSON."""
    document = json.loads(call("list", "systems", "--json").out)
    assert [one["system"] for one in document["systems"]] == ["composed", "theirs"]
    assert document["systems"][0]["choices"]["average"] == "pairs pull"
    monkeypatch.undo()
    both = json.loads(call("list", "--json").out)
    assert {"pointnav", "emulated"} <= {one["scenario"] for one in both["scenarios"]}
    assert "sync" in {one["system"] for one in both["systems"]}


class Odd:
    """A system, and a scenario family, of which one attribute raises or is of a wrong type."""

    about = "odd"
    variants: Any = ("one",)
    unavailable: Any = staticmethod(lambda: None)


def odd(attribute: str, value: Any) -> Any:
    """One whose attribute has a value, or raises it."""

    def get(_: object) -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    return type("Odd", (Odd,), {attribute: property(get)})()


@pytest.mark.parametrize(
    ("value", "said"),
    [(LookupError("no wall"), "LookupError: no wall"), (SystemExit("bye"), "SystemExit: bye"), (7, "about is 7")],
    ids=["LookupError", "SystemExit", "number"],
)
def test_a_system_that_cannot_be_asked_has_a_row(installed: dict[str, Any], value: Any, said: str) -> None:
    """It says what was raised, and the others are listed."""
    installed["odd"] = odd("about", value)
    ended = call("list", "systems", "--json")
    rows = {row["system"]: row["about"] for row in json.loads(ended.out)["systems"]}
    assert (ended.code, ended.err, rows["composed"]) == (0, "", "composed of choices")
    assert said in rows["odd"]


@pytest.mark.parametrize("attribute", ["about", "variants", "unavailable", "make"])
@pytest.mark.parametrize("value", [LookupError("no wall"), SystemExit("bye"), 7, "text"], ids=repr)
def test_a_scenario_that_cannot_be_asked_has_a_row(monkeypatch: pytest.MonkeyPatch, attribute: str, value: Any) -> None:
    """It says what is wrong, and the others are listed; what the list does not ask for does not matter."""
    load = registry.load_family
    names = registry.names
    monkeypatch.setattr(registry, "names", lambda group: [*names(group), "odd"][-2:])
    monkeypatch.setattr(registry, "load_family", lambda name: odd(attribute, value) if name == "odd" else load(name))
    ended = call("list", "scenarios", "--json")
    assert (ended.code, ended.err) == (0, "")
    fine, row = json.loads(ended.out)["scenarios"]
    assert fine["about"] != "-"
    if attribute == "make" or (attribute, value) == ("about", "text"):
        assert row["unavailable"] is None
    else:
        assert row["unavailable"]
        assert not isinstance(value, BaseException) or str(value) in row["unavailable"]
    assert call("list", "scenarios").code == 0
