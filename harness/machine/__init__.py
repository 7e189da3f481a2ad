"""What this machine is, and what it does while runs go on."""
