"""Against other people's systems, on the same work, in turn."""
