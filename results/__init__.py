"""Run records: schema, store and statistics."""
