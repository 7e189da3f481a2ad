"""What a rank owns: a GPU, an emulated GPU, or its share of the CPU."""
