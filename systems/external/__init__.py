"""Other people's systems: trainers that run in their own processes and are counted by `rlbench_client`."""
