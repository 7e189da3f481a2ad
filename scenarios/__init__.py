"""The work: environments, policies and learning settings."""
