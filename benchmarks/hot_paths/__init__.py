"""Times single paths: with pytest-benchmark under `nox -s bench`, as programs of their own, or both."""
