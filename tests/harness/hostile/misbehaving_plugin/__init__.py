"""A distribution of somebody else's: the scenario family `misbehaving`. Installed beside rlbench by the tests."""
