"""Stable-Baselines3's PPO; see README.md beside this file."""
