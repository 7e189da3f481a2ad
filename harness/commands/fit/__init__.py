"""`rlbench fit`: changes a profile so that the systems' models give figures that were measured or published."""
