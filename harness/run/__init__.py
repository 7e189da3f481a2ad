"""From a cell to its run folder."""
