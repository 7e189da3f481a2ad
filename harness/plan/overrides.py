"""Applies settings from the command line, `name:field=value:field.field=value`, to frozen dataclasses.

A plus joins the values of a tuple field (`maps=basic+take_cover`). A field that holds one of several variants takes a
variant's name (`preempt=never`); a dot reaches the variant's own fields (`preempt.p=0.8`). A class lists its variants
in `VARIANTS`: field -> name -> class. Fields that a class lists in `FREE` take any key (`kwargs.size=20`), as text.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from rlbench.harness.contract.settings import LearnSettings
from rlbench.results.reading.names import known_names, nearest

Settings = TypeVar("Settings")

FIXED_FIELDS = {"name", "about", "workload", "preload", "gpu_costs", "profile", "code"}
"""Fields that identify an object or are derived; the command line cannot set them."""


def split_settings(text: str, what: str) -> tuple[str, dict[str, str]]:
    """`ddppo:preempt.p=0.8` -> ("ddppo", {"preempt.p": "0.8"}). Raises ValueError when a part is not `field=value`."""
    return _split(text.strip().split(":"), text, what)


def _split(whole: Sequence[str], text: str, what: str) -> tuple[str, dict[str, str]]:
    name, *parts = whole
    settings = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not (equals and key and value):
            raise ValueError(f"{what} {text}: {part!r} must be field=value")
        if key in settings:
            raise ValueError(f"{what} {text}: {key} is set twice")
        settings[key] = value
    return name, settings


def split_scenario(text: str, what: str) -> tuple[str, dict[str, str]]:
    """As `split_settings`, for a scenario: its name may hold colons after a slash, and so may values.

    A part without `=` goes on with the part before it: `gym/pack:Id-v0:wrappers=pack:Norm` has one setting.
    """
    parts: list[str] = []
    for part in text.strip().split(":"):
        if part and "=" not in part and parts and ("/" in parts[0] or len(parts) > 1):
            parts[-1] += f":{part}"
        else:
            parts.append(part)
    return _split(parts, text, what)


def apply_settings(target: Settings, settings: Mapping[str, str], where: str) -> Settings:
    """A copy of a frozen dataclass with fields set from text. Raises ValueError with the known fields, or the rule.

    All settings are parsed first and each dataclass is made once, so that its checks see all settings together.
    """
    if not settings:
        return target
    if not dataclasses.is_dataclass(target):
        raise ValueError(f"{where}:{next(iter(settings))}: {where} has no settings")
    return cast("Settings", _changed(target, {tuple(key.split(".")): text for key, text in settings.items()}, where))


def typed_settings(target: Any, settings: Mapping[str, str]) -> dict[str, Any]:
    """The values in `target` of the fields that `settings` set; a variant is given by its name."""
    typed = {}
    for key, text in settings.items():
        value = target
        for name in key.split("."):
            value = value[name] if isinstance(value, Mapping) else getattr(value, name)
        typed[key] = text if dataclasses.is_dataclass(value) else value
    return typed


def settable(target: Any) -> list[str]:
    """Names of the fields that can be set; a dot reaches the fields of an inner dataclass."""
    names = []
    for field in dataclasses.fields(target):
        if field.name in FIXED_FIELDS:
            continue
        value = getattr(target, field.name)
        if field.name in getattr(target, "VARIANTS", {}):
            names.append(field.name)
        if dataclasses.is_dataclass(value):
            names += [f"{field.name}.{inner}" for inner in settable(value)]
        elif field.name in getattr(target, "FREE", ()):
            names.append(f"{field.name}.NAME")
        elif isinstance(value, Mapping):
            names += [f"{field.name}.{inner}" for inner in settable(LearnSettings())]
        else:
            names.append(field.name)
    return names


Path = tuple[str, ...]
"""Names of fields, one inside the other: `("preempt", "p")`."""


def _changed(target: Any, settings: Mapping[Path, str], where: str, above: Path = ()) -> Any:
    """A copy of `target` with the fields at the paths in `settings` set; `above` is the path to `target` itself."""
    names = {field.name for field in dataclasses.fields(target)} - FIXED_FIELDS
    by_name: dict[str, dict[Path, str]] = {}
    for path, text in settings.items():
        if path[0] not in names:
            typed = _typed(where, above + path)
            known = [".".join((*above, field)) for field in settable(target)]
            whole, holder = ".".join(above + path), ".".join((*above, path[0]))
            meant = whole if nearest(whole, known) else holder  # of `premept.p` the first part may be meant
            raise ValueError(f"{typed}: unknown field; {known_names(meant, known)}")
        by_name.setdefault(path[0], {})[path[1:]] = text
    values = {name: _value(target, name, inner, where, above) for name, inner in by_name.items()}
    try:
        return dataclasses.replace(target, **values)
    except ValueError as error:
        raise ValueError(_blamed(str(error), settings, where, above)) from None


def _typed(where: str, path: Path) -> str:
    return f"{where}:{'.'.join(path)}"


def _blamed(message: str, settings: Mapping[Path, str], where: str, above: Path) -> str:
    """The broken rule, after the setting that it names, or after all settings where it names none."""
    for path, text in settings.items():
        rule = re.sub(rf"^(?:\S+[.:]\s?)?{re.escape(path[-1])}=\S*: ", "", message)
        if rule != message or len(settings) == 1:
            return f"{_typed(where, above + path)}={text}: {rule}"
    shown = ":".join(f"{'.'.join(above + path)}={text}" for path, text in settings.items())
    return f"{where}:{shown}: {message}"


def _value(target: Any, name: str, settings: Mapping[Path, str], where: str, above: Path) -> Any:
    """The new value of the field `name`; `settings` has its own text at `()`, and the texts of the fields inside it."""
    path = (*above, name)
    current = getattr(target, name)
    if name in getattr(target, "FREE", ()):
        return {**current, **_free(settings, where, path)}
    variants = getattr(target, "VARIANTS", {}).get(name)
    text, inner = settings.get(()), {key: value for key, value in settings.items() if key}
    if variants is not None and text is not None:
        if text not in variants:
            raise ValueError(f"{_typed(where, path)}={text}: unknown; {known_names(text, variants)}")
        current, text = variants[text](), None
    holder = LearnSettings(**current) if isinstance(current, Mapping) else current
    if variants is not None:
        _check_owner(variants, current, inner, where, path)
    if dataclasses.is_dataclass(holder):
        if text is not None:
            raise ValueError(f"{_typed(where, path)}: set one of its fields: {', '.join(settable(holder))}")
        if not inner:
            return current
        changed = _changed(holder, inner, where, path)
        if isinstance(current, Mapping):
            return {**current, **{field: getattr(changed, field) for field, *_ in inner}}
        return changed
    if inner:
        raise ValueError(f"{_typed(where, path + next(iter(inner)))}: {name} has no fields")
    assert text is not None
    return _parse(text, typing.get_type_hints(type(target))[name], _typed(where, path))


def _free(settings: Mapping[Path, str], where: str, path: Path) -> dict[str, str]:
    """The keys that are set of a field that takes any."""
    for key, text in settings.items():
        if len(key) != 1:
            typed = _typed(where, path + key)
            raise ValueError(f"{typed}={text}: must be {path[-1]}.NAME=VALUE, with a name that has no dot")
    return {name: text for (name,), text in settings.items()}


def _check_owner(
    variants: Mapping[str, type], current: Any, settings: Mapping[Path, str], where: str, above: Path
) -> None:
    """Raises ValueError for a setting that only other variants have, and names those variants."""
    own = {field.name for field in dataclasses.fields(current)}
    for (name, *_), text in settings.items():
        owners = [
            variant for variant, kind in variants.items() if name in {field.name for field in dataclasses.fields(kind)}
        ]
        if name not in own and owners:
            choice, known = above[-1], ", ".join(sorted(own)) or "none"
            chosen = next(variant for variant, kind in variants.items() if kind is type(current))
            raise ValueError(
                f"{_typed(where, (*above, name))}={text}: unknown field of {choice}={chosen}; known: {known}; it is "
                f"one of {choice}={', '.join(owners)}; nearest: {choice}={owners[0]}:{'.'.join((*above, name))}={text}"
            )


def _parse(text: str, kind: Any, where: str) -> Any:
    optional = typing.get_origin(kind) in {types.UnionType, typing.Union} and type(None) in typing.get_args(kind)
    if optional and text == "none":
        return None
    from pydantic import TypeAdapter, ValidationError  # whoever only lists fields need not wait for it

    several = typing.get_origin(kind) is tuple
    try:
        value = TypeAdapter(kind).validate_python(tuple(text.split("+")) if several else text)
    except ValidationError as error:
        raise ValueError(f"{where}={text}: {error.errors()[0]['msg']}") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where}={text}: must be a finite number")
    return value
