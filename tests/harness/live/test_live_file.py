from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from rlbench.harness.live.live_file import LiveFile
from rlbench.harness.live.state import LIVE_BYTES, LIVE_FILE, LiveSweep, Writer, read_live
from tests.harness.runs import wait_until

STATE = LiveSweep(writer=Writer.me(), num_cells=3, num_ended=1, num_failed=0, running=(), num_running=0)


def test_it_is_written_again_and_again_and_goes_at_the_end(tmp_path: Path) -> None:
    """Each writing has another beat, so that readers see that the writer lives."""
    with closing(LiveFile(lambda: tmp_path, lambda: STATE)):
        beats = set[int]()

        def has_two() -> bool:
            if (live := read_live(tmp_path)) is not None:
                beats.add(live.beat)
                assert live == STATE.model_copy(update={"beat": live.beat})
            return len(beats) > 1

        wait_until(has_two, "it is written twice")
    assert list(tmp_path.iterdir()) == []
    assert read_live(tmp_path) is None


def test_a_folder_that_is_being_removed_can_be(tmp_path: Path) -> None:
    """A file that somebody has removed does not come back; in a folder made anew there is one again."""
    place, seen = [tmp_path / "old"], []
    for name in ("old", "new"):
        (tmp_path / name).mkdir()

    def where() -> Path:
        seen.append(place[0])
        return place[0]

    with closing(LiveFile(where, lambda: STATE)):
        wait_until((tmp_path / "old" / LIVE_FILE).exists, "it is written")
        (tmp_path / "old" / LIVE_FILE).unlink()
        before = len(seen)
        wait_until(lambda: len(seen) > before + 1, "it was to be written since")
        assert not (tmp_path / "old" / LIVE_FILE).exists()
        (tmp_path / "old").rmdir()
        place[0] = tmp_path / "new"
        wait_until((tmp_path / "new" / LIVE_FILE).exists, "it is written there")


def test_whether_the_writer_lives() -> None:
    """Its number alone does not tell; of another machine, or another container, nothing can be told."""
    code = "from rlbench.harness.live.state import Writer; print(Writer.me().model_dump_json(), flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        writer = Writer.model_validate_json(child.stdout.readline())
        assert writer.pid == child.pid
        others: tuple[dict[str, object], ...] = (
            {},
            {"started": writer.started + 1},
            {"boot": "another"},
            {"namespace": "another"},
        )
        assert [writer.model_copy(update=other).lives for other in others] == [True, False, None, None]
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        seen = [writer.lives]  # though nobody has taken it away yet
    assert [*seen, writer.lives] == [False, False]


GOOD = json.loads(STATE.model_dump_json())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        json.dumps({**GOOD, "version": 2}),
        json.dumps({**GOOD, "num_cells": -1}),
        json.dumps({**GOOD, "left_s": "soon"}),
        json.dumps({**GOOD, "more": 1}),
        json.dumps({**GOOD, "running": [{}]}),
        json.dumps(GOOD)[:-1] + " " * LIVE_BYTES + "}",
    ],
)
def test_what_no_runner_has_written_is_refused(tmp_path: Path, text: str) -> None:
    """Anybody may have written it."""
    (tmp_path / LIVE_FILE).write_text(text)
    with pytest.raises(ValueError, match=LIVE_FILE):
        read_live(tmp_path)


def test_a_pipe_is_not_waited_for_and_escapes_are_made_visible(tmp_path: Path) -> None:
    """A terminal must not obey what a file says."""
    os.mkfifo(tmp_path / LIVE_FILE)
    with pytest.raises(ValueError, match="is a named pipe"):
        read_live(tmp_path)
    (tmp_path / LIVE_FILE).unlink()
    told = {**GOOD, "writer": {**GOOD["writer"], "host": "\x1b[2J"}}
    (tmp_path / LIVE_FILE).write_text(json.dumps(told))
    live = read_live(tmp_path)
    assert live is not None
    assert live.writer.host == r"\x1b[2J"
