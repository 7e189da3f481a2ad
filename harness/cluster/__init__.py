"""Sweeps as Slurm jobs, and what messages take between the nodes of a launch."""
