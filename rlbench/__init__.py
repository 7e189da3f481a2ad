"""Only for `python -m rlbench`; the command starts from `rlbench_start` and does not need this package."""
