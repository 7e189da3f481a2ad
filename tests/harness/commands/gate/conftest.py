"""The toy repository that tests of revisions use."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.commands.gate import toy_repository
from tests.harness.plan.copied_environments import copied_environments


@dataclass(kw_only=True, slots=True)
class Shared:
    """What all tests of revisions use: a repository to copy, a cache, and the environments made in it."""

    repository: Path
    cache: Path
    made: list[Path]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """Made once for all."""
    folder = tmp_path_factory.mktemp("shared")
    with copied_environments(folder) as made:
        yield Shared(repository=toy_repository.make_repository(folder / "toy"), cache=folder / "cache", made=made)


@pytest.fixture
def repository(shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The toy repository as the working folder, and a cache that others have used before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared.cache))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    folder = tmp_path / "toy"
    shutil.copytree(shared.repository, folder)
    monkeypatch.chdir(folder)
    return folder
