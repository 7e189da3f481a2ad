"""What messages between the ranks of a run take: measured, not trained."""
