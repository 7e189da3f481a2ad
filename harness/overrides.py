"""Settings from the command line: `name:field=value:field.field=value` onto frozen dataclasses.

A field of several values takes them with a plus (`maps=basic+take_cover`). A field that holds one of several variants
takes a variant's name (`preempt=never`); its own fields are reached with a dot (`preempt.p=0.8`). A class says its
variants in `VARIANTS`: field -> name -> class.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from harness.settings import LearnSettings

Settings = TypeVar("Settings")

FIXED_FIELDS = {"name", "about", "workload", "preload", "gpu_costs", "profile"}
"""What identifies an object, or is derived; not for the command line."""


def parse_choice(text: str, what: str) -> tuple[str, dict[str, str]]:
    """`ddppo:preempt.p=0.8` -> ("ddppo", {"preempt.p": "0.8"}). Raises ValueError when a part is no `field=value`."""
    name, *parts = text.strip().split(":")
    settings = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not (equals and key and value):
            raise ValueError(f"{what} {text}: {part!r} must be field=value")
        if key in settings:
            raise ValueError(f"{what} {text}: {key} is set twice")
        settings[key] = value
    return name, settings


def apply_settings(target: Settings, settings: Mapping[str, str], where: str) -> Settings:
    """A copy of a frozen dataclass with fields set from text. Raises ValueError: the known fields, or the rule."""
    if settings and not dataclasses.is_dataclass(target):
        raise ValueError(f"{where}:{next(iter(settings))}: {where} has no settings")
    for key in sorted(settings, key=lambda key: key.count(".")):  # a variant is chosen before its fields are set
        target = _set(target, key.split("."), settings[key], f"{where}:{key}")
    return target


def typed_settings(target: Any, settings: Mapping[str, str]) -> dict[str, Any]:
    """The values that fields set from text have in the object they were set on; a variant is its name."""
    typed = {}
    for key, text in settings.items():
        value = target
        for name in key.split("."):
            value = value[name] if isinstance(value, Mapping) else getattr(value, name)
        typed[key] = text if dataclasses.is_dataclass(value) else value
    return typed


def settable(target: Any) -> list[str]:
    """Names of the fields that can be set, with a dot into the dataclasses that it holds."""
    names = []
    for field in dataclasses.fields(target):
        if field.name in FIXED_FIELDS:
            continue
        value = getattr(target, field.name)
        if field.name in getattr(target, "VARIANTS", {}):
            names.append(field.name)
        if dataclasses.is_dataclass(value):
            names += [f"{field.name}.{inner}" for inner in settable(value)]
        elif isinstance(value, Mapping):
            names += [f"{field.name}.{inner}" for inner in settable(LearnSettings())]
        else:
            names.append(field.name)
    return names


def _set(target: Any, path: list[str], text: str, where: str) -> Any:
    """A copy of `target` with the field at `path` set."""
    name, *rest = path
    names = {field.name for field in dataclasses.fields(target)} - FIXED_FIELDS
    if name not in names:
        raise ValueError(f"{where}: unknown field; known: {', '.join(settable(target)) or 'none'}")
    value = _value(target, name, rest, text, where)
    try:
        return dataclasses.replace(target, **{name: value})
    except ValueError as error:
        raise ValueError(f"{where}={text}: {_rule(str(error), name)}") from None


def _rule(message: str, name: str) -> str:
    """A rule without the field's name and value before it; a rule of another field keeps them."""
    return re.sub(rf"^(?:\S+[.:]\s?)?{re.escape(name)}=\S*: ", "", message)


def _value(target: Any, name: str, rest: list[str], text: str, where: str) -> Any:
    """What the field `name` of `target` becomes when `text` is set there, or in its own field `rest`."""
    current = getattr(target, name)
    variants = getattr(target, "VARIANTS", {}).get(name)
    inner = LearnSettings(**current) if isinstance(current, Mapping) else current
    if rest:
        if not dataclasses.is_dataclass(inner):
            raise ValueError(f"{where}: {name} has no fields")
        changed = _set(inner, rest, text, where)
        return {**current, rest[0]: getattr(changed, rest[0])} if isinstance(current, Mapping) else changed
    if variants is not None:
        if text not in variants:
            raise ValueError(f"{where}={text}: unknown; known: {', '.join(variants)}")
        return variants[text]()
    if dataclasses.is_dataclass(inner):
        raise ValueError(f"{where}: set one of its fields: {', '.join(settable(inner))}")
    return _parse(text, typing.get_type_hints(type(target))[name], where)


def _parse(text: str, kind: Any, where: str) -> Any:
    optional = typing.get_origin(kind) in {types.UnionType, typing.Union} and type(None) in typing.get_args(kind)
    if optional and text == "none":
        return None
    several = typing.get_origin(kind) is tuple
    try:
        value = TypeAdapter(kind).validate_python(tuple(text.split("+")) if several else text)
    except ValidationError as error:
        raise ValueError(f"{where}={text}: {error.errors()[0]['msg']}") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where}={text}: must be a finite number")
    return value
