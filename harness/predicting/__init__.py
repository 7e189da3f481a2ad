"""What a system would do by its model: planned as runs are, asked for runs or for rates alone."""
