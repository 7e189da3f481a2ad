"""Files that nobody would write: how they are made, and what reads them."""
