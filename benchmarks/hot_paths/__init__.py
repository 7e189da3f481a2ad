"""Single paths, timed by pytest-benchmark: `nox -s bench`; those with numbers of runs are programs too."""
