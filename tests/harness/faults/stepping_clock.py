"""As `sitecustomize.py` in a process's path: its wall clock goes by as many seconds wrong as a file says, now.

The file is named by RLBENCH_TEST_CLOCK. What the kernel writes (times of files) is not wrong.
"""

import os
import time
from pathlib import Path


def _offset_s() -> float:
    try:
        return float(Path(os.environ["RLBENCH_TEST_CLOCK"]).read_text())
    except (KeyError, OSError, ValueError):
        return 0.0


_time = time.time
time.time = lambda: _time() + _offset_s()
