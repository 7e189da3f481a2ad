"""Carries out how ranks agree on weights and on progress."""
