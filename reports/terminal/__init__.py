"""Output to a terminal: the table of cells, comparisons, histories, and the gate, also as Markdown and JUnit XML."""
