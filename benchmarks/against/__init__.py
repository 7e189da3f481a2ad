"""Compares our systems with other people's, on the same work, in turn."""
