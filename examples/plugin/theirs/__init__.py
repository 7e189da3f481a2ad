"""A system and a scenario in a package of their own: `pip install examples/plugin` makes rlbench know them."""
