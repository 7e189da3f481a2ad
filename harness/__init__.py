"""Plans, launches, meters and records cells."""
