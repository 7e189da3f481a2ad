"""Runs and summaries for other programs: JSON, CSV, Parquet, Markdown, traces."""
