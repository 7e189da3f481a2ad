"""How figures are written, and the columns of a table of cells."""
