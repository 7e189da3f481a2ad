"""What environments take and give, laid out as rows of numbers; without torch."""
