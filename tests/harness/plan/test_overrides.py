from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from rlbench.harness.contract.settings import CORRECTIONS, LearnSettings
from rlbench.harness.plan.overrides import apply_settings, settable, split_scenario, split_settings, typed_settings


@dataclass(frozen=True, kw_only=True, slots=True)
class Plain:
    pass


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranged:
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"Ranged.high={self.high}: must be above low={self.low}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    VARIANTS: ClassVar[Mapping[str, Mapping[str, type]]] = {"kind": {"plain": Plain, "ranged": Ranged}}

    name: str = "target"
    kind: Plain | Ranged = field(default_factory=Plain)
    learn: Mapping[str, Any] = field(default_factory=dict)
    num: int = 1
    limit: float | None = 2.0
    flag: bool = False
    words: tuple[str, ...] = ("a",)

    def __post_init__(self) -> None:
        if self.flag != (self.words != ("a",)):
            raise ValueError(f"target: flag={self.flag} cannot go with words={'+'.join(self.words)}; change both")


def test_choices_are_names_and_settings() -> None:
    """A choice is a name, then `field=value` after colons; a value may hold an equals sign."""
    assert split_settings(" ddppo:preempt.p=0.8:learn.epochs=3 ", "--systems") == (
        "ddppo",
        {"preempt.p": "0.8", "learn.epochs": "3"},
    )
    assert split_settings("x:a=b=c", "--systems") == ("x", {"a": "b=c"})


@pytest.mark.parametrize(
    ("text", "name", "settings"),
    [
        ("pointnav", "pointnav", {}),
        ("gym/CartPole-v1:num_envs=16", "gym/CartPole-v1", {"num_envs": "16"}),
        ("gym/pack:Id-v0:kwargs.size=2", "gym/pack:Id-v0", {"kwargs.size": "2"}),
        ("gym/pack.inner:ns/Id-v0", "gym/pack.inner:ns/Id-v0", {}),
        ("gym/./file.py:It", "gym/./file.py:It", {}),
        ("gym//a=b/file.py:It:num_envs=2", "gym//a=b/file.py:It", {"num_envs": "2"}),
        ("gym:ids=pack:A+pack:B:num_envs=2", "gym", {"ids": "pack:A+pack:B", "num_envs": "2"}),
        ("gym/A:wrappers=p:X+q:Y", "gym/A", {"wrappers": "p:X+q:Y"}),
        ("gym/A:kwargs.url=tcp://host:80/a", "gym/A", {"kwargs.url": "tcp://host:80/a"}),
    ],
)
def test_names_and_values_of_scenarios_may_hold_colons(text: str, name: str, settings: dict[str, str]) -> None:
    """A part without an equals sign goes on with the one before, after a slash or a setting."""
    assert split_scenario(f" {text} ", "--scenario") == (name, settings)


@pytest.mark.parametrize("text", ["pointnav:num_envs", "pointnav::num_envs=2", "gym/A:", "gym/A::b=1", "gym/A:b="])
def test_parts_of_scenarios_that_are_nothing_are_refused(text: str) -> None:
    """As those of systems."""
    with pytest.raises(ValueError, match=rf"^--scenario {text}: '.*' must be field=value$"):
        split_scenario(text, "--scenario")


@dataclass(frozen=True, kw_only=True, slots=True)
class Open:
    FREE: ClassVar[tuple[str, ...]] = ("kwargs",)

    kwargs: Mapping[str, str] = field(default_factory=dict)
    num: int = 1


def test_a_field_may_take_any_key() -> None:
    """As text, beside those it has; what is set is told as text again."""
    changed = apply_settings(Open(kwargs={"a": "1", "b": "2"}), {"kwargs.b": "x:y", "kwargs.c": "03"}, "open")
    assert changed == Open(kwargs={"a": "1", "b": "x:y", "c": "03"})
    assert typed_settings(changed, {"kwargs.c": "03", "num": "1"}) == {"kwargs.c": "03", "num": 1}
    assert settable(Open()) == ["kwargs.NAME", "num"]


@pytest.mark.parametrize("name", ["kwargs", "kwargs.a.b"])
def test_a_key_has_a_plain_name(name: str) -> None:
    """There is one dot, and a name behind it."""
    with pytest.raises(ValueError, match=rf"^open:{name}=1: must be kwargs\.NAME=VALUE"):
        apply_settings(Open(), {name: "1"}, "open")


def test_settings_are_parsed_by_their_fields_type() -> None:
    """Each field gets a value of its type; several values come with a plus; `none` where a field allows it."""
    changed = apply_settings(
        Target(), {"num": "3", "limit": "none", "flag": "true", "words": "b+c", "learn.epochs": "4"}, "target"
    )
    assert changed == Target(num=3, limit=None, flag=True, words=("b", "c"), learn={"epochs": 4})


def test_variants_are_chosen_before_their_fields() -> None:
    """The order on the command line does not matter: a variant is there when its field is set."""
    changed = apply_settings(Target(), {"kind.high": "5", "kind": "ranged"}, "target")
    assert changed.kind == Ranged(high=5.0)


def test_settings_are_judged_together() -> None:
    """What each of two settings would make impossible by itself, both may make possible; order does not matter."""
    for name, text in (("flag", "on"), ("words", "b")):
        with pytest.raises(ValueError, match=rf"^target:{name}={text}: target: flag=.* change both$"):
            apply_settings(Target(), {name: text}, "target")
    for settings in ({"flag": "on", "words": "b"}, {"words": "b", "flag": "on"}):
        assert apply_settings(Target(), settings, "target") == Target(flag=True, words=("b",))
    inside = {"kind.high": "-1", "kind.low": "-2", "kind": "ranged"}
    assert apply_settings(Target(), inside, "target").kind == Ranged(low=-2.0, high=-1.0)


def test_a_rule_of_several_settings_is_refused_with_all_of_them() -> None:
    """A mix that no single setting is to blame for is said as it was typed, with the reason."""
    rule = r"^target:flag=on:num=3: target: flag=True cannot go with words=a; change both$"
    with pytest.raises(ValueError, match=rule):
        apply_settings(Target(), {"flag": "on", "num": "3"}, "target")


def test_fields_of_a_mapping_are_set_together() -> None:
    """Learning settings that were there stay, those that are set are checked, and no other is added."""
    target = apply_settings(Target(learn={"epochs": 3}), {"learn.clip": "0.1", "learn.discount": "0.9"}, "target")
    assert target.learn == {"epochs": 3, "clip": 0.1, "discount": 0.9}


def test_the_original_is_left_alone() -> None:
    """Settings make a copy."""
    target = Target()
    apply_settings(target, {"learn.epochs": "4", "num": "9"}, "target")
    assert target == Target()


def test_typed_settings_are_the_values_in_the_object() -> None:
    """What a record holds are numbers, truths and lists, not what was typed; a variant stays a name."""
    texts = {"kind": "ranged", "kind.high": "5.50", "learn.epochs": "4", "num": "07", "flag": "on", "words": "b+c"}
    assert typed_settings(apply_settings(Target(), texts, "target"), texts) == {
        "kind": "ranged",
        "kind.high": 5.5,
        "learn.epochs": 4,
        "num": 7,
        "flag": True,
        "words": ("b", "c"),
    }


def test_settable_names_what_can_be_set() -> None:
    """The names that an error lists can all be set, and those that identify an object are not among them."""
    names = settable(Target(kind=Ranged()))
    assert names[:3] == ["kind", "kind.low", "kind.high"]
    assert {"num", "limit", "flag", "words", "learn.epochs", "learn.correct"} <= set(names)
    assert "name" not in names


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nope": "1"}, "target:nope: unknown field; known: kind, learn.epochs, .* more$"),
        ({"name": "x"}, "target:name: unknown field"),
        ({"VARIANTS": "x"}, "target:VARIANTS: unknown field"),
        ({"__class__": "x"}, "target:__class__: unknown field"),
        ({"kind.low": "1"}, "target:kind.low=1: unknown field of kind=plain; .*; nearest: kind=ranged:kind.low=1$"),
        ({"kind": "x"}, "target:kind=x: unknown; known: plain, ranged"),
        ({"kind": "ranged", "kind.low": "3"}, r"target:kind.low=3: Ranged.high=1.0: must be above low=3.0$"),
        ({"kind": "ranged", "kind.high": "-1"}, r"target:kind.high=-1: must be above low=0.0$"),
        ({"num.x": "1"}, "target:num.x: num has no fields"),
        ({"num": "1.5"}, "target:num=1.5: .*valid integer"),
        ({"num": ""}, "target:num=: .*valid integer"),
        ({"limit": "inf"}, "target:limit=inf: must be a finite number"),
        ({"limit": "nan"}, "target:limit=nan: must be a finite number"),
        ({"flag": "maybe"}, "target:flag=maybe: .*valid boolean"),
        ({"learn.epochs": "0"}, "target:learn.epochs=0: must be at least 1$"),
        ({"learn.nope": "0"}, "target:learn.nope: unknown field; known: learn.epochs, "),
    ],
)
def test_bad_settings(settings: dict[str, str], message: str) -> None:
    """What cannot be set is refused with the field as it was typed and the rule, or the names that there are."""
    with pytest.raises(ValueError, match=message):
        apply_settings(Target(), settings, "target")


def test_what_is_no_dataclass_has_no_settings() -> None:
    """A system of somebody else's need not be a dataclass; it then takes no settings, and says so."""
    thing = object()
    assert apply_settings(thing, {}, "theirs") is thing
    with pytest.raises(ValueError, match=r"^theirs:x: theirs has no settings$"):
        apply_settings(thing, {"x": "1"}, "theirs")


def test_learning_settings_check_every_field() -> None:
    """Each learning setting has a rule, and breaking it names field, value and rule."""
    for name, value, rule in (
        ("epochs", 0, "at least 1"),
        ("num_minibatches", 0, "at least 1"),
        ("learning_rate", 0.0, "above 0"),
        ("discount", 1.1, "from 0 to 1"),
        ("gae_lambda", -0.1, "from 0 to 1"),
        ("clip", 0.0, "above 0"),
        ("max_grad_norm", 0.0, "above 0"),
        ("correct", "nope", f"one of: {', '.join(CORRECTIONS)}"),
    ):
        settings: dict[str, Any] = {name: value}
        with pytest.raises(ValueError, match=rf"^learn\.{name}={value}: must be {rule}$"):
            LearnSettings(**settings)
