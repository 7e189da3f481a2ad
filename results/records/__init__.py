"""The record of one run: its schema, its parts, the store of run folders, and an index over many runs."""
