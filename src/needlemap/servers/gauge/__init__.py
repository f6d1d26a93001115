"""The small model that never misses."""
