"""Measures speed: hot paths, whole runs, comparisons with other libraries, the gate; makes tables of learning."""
