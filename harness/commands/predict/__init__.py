"""`rlbench predict`: runs that a model makes up, with the records of real ones; the models are the systems' own."""
