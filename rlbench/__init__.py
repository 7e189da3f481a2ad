"""For `python -m rlbench` alone; the command starts from `rlbench_start`, and does without this package."""
