"""Sweeps as Slurm jobs, and how long messages take between the nodes of a launch."""
