"""Counting where it happens: meters, the environments' counters, and the iterations that count."""
