"""The record of one run: its schema, the store, and what is remembered of many."""
