"""Summary of a set of runs: cells over seeds, comparisons, scaling, learning, findings, and answers in sentences."""
