"""Checks what must not become slower: `nox -s gate`."""
