from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from harness import stacks


@pytest.mark.parametrize(("num_lines", "num_seen"), [(5, 5), (1, 1), (0, 0), (1000, 25)])
def test_a_stack_is_waited_for_to_its_last_line(
    num_lines: int, num_seen: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It grows while one looks, a line each time; where there is no end of it, or no beginning, not for ever."""
    path, now_s, written = tmp_path / "stacks-rank0.txt", [0.0], [0]
    path.touch()

    def sleep(seconds: float) -> None:
        now_s[0] += seconds
        if written[0] < num_lines:
            written[0] += 1
            path.write_text("line\n" * written[0])

    monkeypatch.setattr(stacks, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=sleep))
    stacks._await([path])
    assert written[0] == num_seen
    assert now_s[0] <= stacks.ANSWER_S + 0.05
