"""Other people's systems: trainers that run as processes of their own, counted by `rlbench_client`."""
