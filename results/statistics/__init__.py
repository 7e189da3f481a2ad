"""Intervals and curves: pure functions of numbers."""
