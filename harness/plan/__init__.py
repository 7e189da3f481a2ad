"""From what was asked for to cells."""
