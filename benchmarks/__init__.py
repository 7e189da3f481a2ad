"""Everything that takes the time of something: hot paths, whole runs, against others, the gate; tables of learning."""
