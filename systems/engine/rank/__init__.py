"""One rank of a system: the loop, and the parts that the five choices ask for."""
