"""Changes to the product that some test must notice: `nox -s mutations`. The tests check only the list of them."""
