"""Filling batches: slots of the table, which environments may act, and when stragglers are cut."""
