"""How small a loss `rlbench gate` sees, and how often it is wrong: `nox -s power`."""
