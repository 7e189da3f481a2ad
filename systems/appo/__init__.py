"""APPO: asynchronous PPO, as in Sample Factory."""
