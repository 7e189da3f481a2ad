from __future__ import annotations

import pytest

from tests.mutations.__main__ import CHANGES, main
from tests.mutations.change import ROOT, Change

PACKAGES = {
    *(f"harness/{name}" for name in ("cli", "cluster", "contract", "devices", "launch", "machine", "metering")),
    *(f"harness/{name}" for name in ("plan", "processes", "run")),
    *(f"harness/commands/{name}" for name in ("gate", "predict", "profile", "reproduce")),
    *(f"systems/{name}" for name in ("choices", "engine", "learn", "model", "external")),
    *("scenarios", "results", "reports", "rlbench_client", "rlbench_pytest", "rlbench_start"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_can_be_made(change: Change) -> None:
    """The text that it replaces stands exactly once in its file, and there are tests of its package to run first."""
    assert change.occurrences() == 1, f"{change.file}: {change.old}"
    assert change.old != change.new
    assert change.own_tests(ROOT) or change.folder_of_tests(ROOT)
    assert all((ROOT / name).is_file() for name in change.own_tests(ROOT))


def test_every_package_has_changes() -> None:
    """Each part of the product has something that a test must notice."""
    files = [change.file for change in CHANGES.values()]
    assert [name for name in PACKAGES if not any(file.startswith(name) for file in files)] == []


def test_an_unknown_change_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The known ones are listed."""
    monkeypatch.setattr("sys.argv", ["mutations", "--only", "nothing"])
    with pytest.raises(SystemExit):
        main()
    assert "gae-sign" in capsys.readouterr().err
