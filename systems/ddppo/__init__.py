"""DD-PPO."""
