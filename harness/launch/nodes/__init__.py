"""Runs on several machines: the head, an agent on every node, and what they say to each other."""
