"""Environment workers, the inference that acts for them, and environments of other machines."""
