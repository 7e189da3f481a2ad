"""VER and DD-PPO of habitat-baselines; see README.md beside this file."""
