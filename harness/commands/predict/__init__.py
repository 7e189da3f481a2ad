"""`rlbench predict`: runs that a system's own model predicts, with records like those of real runs."""
