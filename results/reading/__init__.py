"""Reading and writing of files that may come from, or belong to, anybody."""
