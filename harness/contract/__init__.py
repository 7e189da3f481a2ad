"""What systems and scenarios may import of the harness, and what the rest of it is written against."""
