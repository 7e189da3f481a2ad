"""How ranks agree on weights and on progress, carried out."""
