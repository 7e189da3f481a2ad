"""Reading and writing files that may be anybody's."""
