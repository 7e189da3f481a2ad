"""How far a sweep is: what is still expected, what is written for others into its folder, and what people see."""
