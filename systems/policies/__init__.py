"""Policies: networks for any observations, distributions over any actions; running moments."""
