"""Downpour SGD."""
