"""Devices, of which a rank owns one: a GPU, an emulated GPU, or its share of the CPU."""
