"""Gossiping SGD."""
