"""One rank of a system: its loop, the parts that the five choices ask for, and evaluation."""
