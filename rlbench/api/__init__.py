"""What `import rlbench` offers: calls of the commands, and runs as pandas frames; loaded on first use."""
