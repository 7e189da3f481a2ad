"""Whether runs may be compared."""
