"""`python -P -m rlbench_start rlbench.api.called PID PIPE run …`: the command, called by the Python process PID.

It ends in order when that process ends, and tells it through PIPE where its sweep is (`harness/commands/caller.py`).
"""

import sys

from rlbench_start import main

if __name__ == "__main__":
    from rlbench.harness.commands import caller

    caller.begin(int(sys.argv.pop(1)), int(sys.argv.pop(1)))
    main()
