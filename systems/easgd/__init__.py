"""Elastic averaging SGD."""
