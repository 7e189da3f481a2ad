"""PPO made of torchrl's parts, with its collector that cuts stragglers; see README.md beside this file."""
