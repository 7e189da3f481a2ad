"""Meters, the environments' counters, and the choice of the iterations that count."""
