"""`rlbench gate`: measures whether a candidate is slower than a baseline; `results.verdicts.gate` judges."""
