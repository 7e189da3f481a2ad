"""What a set of runs says: cells over seeds, what they are relative to, what spoils them, and what it comes to."""
