"""Plans sweeps: turns what was asked for into cells, and finds the systems, scenarios and libraries for them."""
