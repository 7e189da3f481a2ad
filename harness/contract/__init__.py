"""Interfaces that systems, scenarios and trainers may import, and against which the rest of the harness is written."""
