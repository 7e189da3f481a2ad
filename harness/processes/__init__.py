"""Processes and what they leave: starting, ending, last words, folders, shared memory."""
