"""Filling batches: slots of the table, who is acted for, and when stragglers are cut."""
