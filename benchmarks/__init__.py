"""Comparisons that take minutes: against other people's systems, and how soon each of ours learns."""
