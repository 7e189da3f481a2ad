"""Measures how long messages between the ranks of a run take; trains nothing."""
