"""NoVER: VER without variable rollouts, its published ablation."""
