"""What carries out the five choices of a system: the rank loop, and the parts that it joins."""
