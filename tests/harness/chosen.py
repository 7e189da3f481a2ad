"""What tests of a module will run: a run that tests share has the cells that these ask for, and no other."""

from __future__ import annotations

from typing import Any

import pytest


def chosen(request: pytest.FixtureRequest, name: str) -> list[Any]:
    """The values of a parameter in all tests of the requesting module that this lane runs, in their order."""
    ours = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    found = [item.callspec.params[name] for item in ours if hasattr(item, "callspec") and name in item.callspec.params]
    return list(dict.fromkeys(found))
