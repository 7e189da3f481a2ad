"""`rlbench gate`: whether a candidate is slower than a baseline; what it judges by is in `results.verdicts.gate`."""
