"""Judgements on runs: comparisons, the gate, histories, and how far predictions were off."""
