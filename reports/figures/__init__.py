"""Formatting of figures, and the columns of a table of cells."""
