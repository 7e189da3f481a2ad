"""HTS-RL: learning one rollout behind collecting."""
