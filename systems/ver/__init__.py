"""VER: variable experience rollout."""
