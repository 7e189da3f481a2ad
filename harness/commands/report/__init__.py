"""`rlbench report`: a page of runs, as HTML or PDF, or served while a sweep runs."""
