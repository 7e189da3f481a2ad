"""What must not become slower: `nox -s gate`."""
