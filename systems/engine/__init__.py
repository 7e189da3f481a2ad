"""The five choices that make a system, and the rank loop that joins them."""
