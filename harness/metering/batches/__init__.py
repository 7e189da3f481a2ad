"""The counters of environments that one call steps: in batches, in pools, or the agents of one."""
