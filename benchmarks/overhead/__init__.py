"""Measures the engine's own overhead on emulated GPUs: work was ready, what it needs was free, and nothing ran."""
