"""Policy networks, PPO, GAE and mini-batches: pure tensor maths."""
