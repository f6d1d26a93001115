"""A run: its folder, its records, and the loop that fills it."""
