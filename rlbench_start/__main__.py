"""`python -P -m rlbench_start`: runs the command, or one of our modules if its name is the first argument."""

import runpy
import sys

from rlbench_start import OURS, look, main

if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].startswith(f"{OURS}."):
        look()
        runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
    else:
        main()
