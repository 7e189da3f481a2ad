"""`python -m rlbench`: the same as the command, which does not look for packages in the working folder either."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # `-m` has put the working folder there; a run's processes are started with `-P`

from rlbench_start import main

if __name__ == "__main__":
    main()
